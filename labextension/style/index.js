import css from '!!./as-text.cjs!./base.css';

const style = document.createElement('style');
style.textContent = css;
document.head.append(style);

/**
 * A loader for the bundler: the style sheet as one short string, without comments and spaces.
 *
 * The builder's own loaders for style sheets bring 2 kB of program with them, a tenth of the whole panel.
 */
module.exports = function asText(css) {
  const short = css
    .replace(/\/\*[^]*?\*\//g, '')
    .replace(/\s+/g, ' ')
    .replace(/ ?([{};,>]) ?/g, '$1')
    .replace(/: /g, ':')
    .replace(/;}/g, '}');
  return `export default ${JSON.stringify(short)};`;
};

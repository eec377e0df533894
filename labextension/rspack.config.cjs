const { SwcJsMinimizerRspackPlugin } = require('@rspack/core');

/** Private members of our classes get short names. All of our program is in one file, so each has one short name. */
const minimizerOptions = {
  compress: { passes: 3, ecma: 2022 },
  mangle: { props: { regex: '^_[a-z][A-Za-z]{2,}$' } }
};

/** How the bundler's runtime finds a shared module: it chooses among twelve ways by what is required of the module. */
const CHOICE = /var resolveHandler = function\(data\) \{[^]*?\n\};\n/;
/** The way of all modules that JupyterLab shares: the only one there is, even if its version is another. */
const SINGLETON = `var resolveHandler = function(data) {
  return function() { return loadSingleton(data.shareScope, data.shareKey); };
};
`;
/** What is required of each module: only the other ways read it. */
const REQUIRED = /, import: null, requiredVersion: "[^"]*", strictVersion: false, [^}]*(?= \})/g;

/**
 * Leaves the other ways out of the runtime: 1.2 kB, packed. They would only write to the console that JupyterLab has
 * another version of a module than the panel was built with.
 */
class OnlySingletons {
  apply(compiler) {
    compiler.hooks.compilation.tap('OnlySingletons', compilation => {
      compilation.hooks.runtimeModule.tap('OnlySingletons', ({ name, source }) => {
        if (name === 'consumes_loading') {
          const runtime = source.source.toString();
          if (
            !CHOICE.test(runtime) ||
            /singleton: false|strictVersion: true|fallback: [^u]/.test(runtime)
          ) {
            throw new Error('a shared module is not found as rspack.config.cjs expects');
          }
          source.source = Buffer.from(runtime.replace(CHOICE, SINGLETON).replace(REQUIRED, ''));
        }
      });
    });
  }
}

module.exports = {
  optimization: {
    // The builder numbers modules by hashes of absolute paths. Numbered in order, a build is the same in every folder.
    moduleIds: 'natural',
    minimizer: [new SwcJsMinimizerRspackPlugin({ minimizerOptions })]
  },
  plugins: [new OnlySingletons()]
};

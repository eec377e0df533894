// The builder numbers modules by hashes of absolute paths. Numbered in order, a build is the same in every folder.
module.exports = { optimization: { moduleIds: 'natural' } };

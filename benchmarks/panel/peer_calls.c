/* Calls of NVIDIA's management library that jupyterlab-nvdashboard makes while it is imported, and we never make.
 *
 * Compiled into the fake library of tests/fakes/nvml for the benchmark: without them that import fails, and there would be
 * no peer to measure. They say "not supported", as a card without NVLink does. Weak: a fake that has a call wins.
 */
enum { NOT_SUPPORTED = 3 };

#define ABSENT(name) __attribute__((weak)) int name(void) { return NOT_SUPPORTED; }

ABSENT(nvmlDeviceGetNvLinkVersion)
ABSENT(nvmlDeviceGetMaxPcieLinkGeneration)
ABSENT(nvmlDeviceGetMaxPcieLinkWidth)
ABSENT(nvmlDeviceGetPcieThroughput)

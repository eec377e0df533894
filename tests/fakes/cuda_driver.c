/* A fake libcuda.so.1 for the notebook test-my-gpu: a host that does what its one kernel does, x -> 3 x + 1 so many times.
 * FAKE_CUDA chooses what is wrong: "none" (no device), "fails" (the launch fails), "lies" (a number is wrong). */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INVALID 1
#define NO_DEVICE 100
#define INVALID_HANDLE 400
#define LAUNCH_FAILED 719

static int context, module, function, current;

static int wrong(const char *what) {
  const char *chosen = getenv("FAKE_CUDA");
  return chosen && strcmp(chosen, what) == 0;
}

int cuInit(unsigned flags) { return flags ? INVALID : wrong("none") ? NO_DEVICE : 0; }
int cuDeviceGet(int *device, int ordinal) { return ordinal ? INVALID : (*device = 7, 0); }
int cuDeviceGetName(char *name, int length, int device) {
  return device != 7 || length < 20 ? INVALID : (strcpy(name, "Fake GPU 1g.10gb"), 0);
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return device != 7 ? INVALID : (*bytes = (size_t)10 << 30, 0); }
int cuDevicePrimaryCtxRetain(void **made, int device) { return device != 7 ? INVALID : (*made = &context, 0); }
int cuDevicePrimaryCtxRelease_v2(int device) { return device != 7 ? INVALID : 0; }
int cuCtxSetCurrent(void *chosen) { return chosen != &context ? INVALID : (current = 1, 0); }
int cuModuleLoadData(void **made, const char *code) {
  return !current || !strstr(code, ".entry steps(") ? INVALID : (*made = &module, 0);
}
int cuModuleGetFunction(void **made, void *of, const char *name) {
  return of != &module || strcmp(name, "steps") ? INVALID_HANDLE : (*made = &function, 0);
}
int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  return (*address = (uint64_t)(uintptr_t)calloc(1, bytes)) && current ? 0 : INVALID;
}
int cuMemFree_v2(uint64_t address) { return free((void *)(uintptr_t)address), 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
  return memcpy((void *)(uintptr_t)to, from, bytes), 0;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
  memcpy(to, (void *)(uintptr_t)from, bytes);
  if (wrong("lies")) ((uint32_t *)to)[bytes / 8] += 1;
  return 0;
}
int cuCtxSynchronize(void) { return 0; }
int cuGetErrorName(int code, const char **text) { return *text = code == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "?", 0; }

int cuLaunchKernel(void *called, unsigned grid, unsigned y, unsigned z, unsigned block, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
  if (called != &function) return INVALID_HANDLE;
  if (y != 1 || z != 1 || by != 1 || bz != 1 || shared || stream || extra || block > 1024) return INVALID;
  if (wrong("fails")) return LAUNCH_FAILED;
  uint32_t *numbers = (uint32_t *)(uintptr_t) * (uint64_t *)arguments[0];
  uint32_t factor = 1, sum = 0;
  for (uint32_t left = *(uint32_t *)arguments[1]; left; left--) sum = 3 * sum + 1, factor *= 3;
  for (size_t at = 0; at < (size_t)grid * block; at++) numbers[at] = factor * numbers[at] + sum;
  return 0;
}

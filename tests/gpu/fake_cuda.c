/* As much of libcuda.so.1 as tests/gpu/work.py calls, for machines without a card: each function checks what it is given.
 * FAKE_CUDA_INIT is what cuInit answers (100: no device).
 * Build: cc -shared -fPIC -O1 -o libcuda.so.1 fake_cuda.c
 */
#include <stdint.h>
#include <stdlib.h>

enum { OK = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201 };
enum { DEVICE = 7, CONTEXT = 11, MEMORY = 1 << 20 };
static int ready, bound;
static size_t held;

int cuInit(unsigned flags) {
    const char *told = getenv("FAKE_CUDA_INIT");
    ready = !told;
    return flags ? INVALID_VALUE : told ? atoi(told) : OK;
}
int cuDeviceGet(int *device, int ordinal) {
    *device = DEVICE;
    return !ready ? NOT_INITIALIZED : ordinal ? INVALID_VALUE : OK;
}
int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    *context = (void *)(uintptr_t)CONTEXT;
    bound = 1;
    return flags || device != DEVICE ? INVALID_VALUE : OK;
}
int cuMemAlloc_v2(uint64_t *memory, size_t size) {
    *memory = MEMORY;
    held = size;
    return !bound ? INVALID_CONTEXT : size ? OK : INVALID_VALUE;
}
int cuMemsetD8_v2(uint64_t memory, unsigned char value, size_t size) {
    return memory != MEMORY || value || size != held ? INVALID_VALUE : OK;
}
int cuCtxSynchronize(void) { return bound ? OK : INVALID_CONTEXT; }

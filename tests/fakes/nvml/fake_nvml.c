/* A small stand-in for NVIDIA's management library, loaded by the real pynvml as libnvidia-ml.so.1.
 *
 * What machine it plays stands in the text file that the environment variable FAKE_NVML_STATE names; the file is read
 * again as soon as it is replaced, so a test changes the machine while a program looks at it. tests/fakes/nvml writes it:
 *
 *   init 0                                   what nvmlInit answers (9: driver not loaded)
 *   reload 0                                 another number: the driver was loaded anew, nothing answers before nvmlInit
 *   driver 550.54.15
 *   gpu uuid=GPU-a mig=1 lost=0 total=N used=N reserved=N util=N cores=N cc=8.0 gpm=0 name=NVIDIA A100-PCIE-40GB
 *   gi gpu=0 id=4 enum=1 profile=14 start=0 size=2 slices=2 sm=28 mb=9984 name=MIG 2g.10gb
 *   mig gpu=0 slot=0 gi=4 ci=0 uuid=MIG-a slices=2 gislices=2 sm=28 total=N used=N util=N name=NVIDIA A100 MIG 2g.10gb
 *   profile gpu=0 enum=1 id=14 slices=2 sm=28 mb=9984 count=3 name=MIG 2g.10gb
 *   proc on=MIG-a pid=42 used=N mps=0                             (used=none: the driver does not tell)
 *   error call=nvmlDeviceGetUtilizationRates on=MIG-a code=3      (code 13: a driver without this call)
 *   error call=gpm:5 on=MIG-a code=3                              one metric of nvmlGpmMetricsGet alone
 *   delay call=nvmlDeviceGetMemoryInfo_v2 on=GPU-a ms=20          each such call takes so long
 *   hang call=nvmlDeviceGetHandleByUUID on=*                      it does not come back before this line is gone
 *
 * on=* is every device, call=* every call. GPM (gpm=1) takes util (graphics), smutil, tensor and dram, in percent, from
 * the mig line, for a whole GPU from the gpu line; one that is not there is not supported. How often each call was made,
 * by all programs together, stands in FAKE_NVML_STATE + ".calls", and how many GPM samples are not freed.
 *
 * Build: cc -shared -fPIC -O1 -o libnvidia-ml.so.1 fake_nvml.c
 * Not here: anything our program does not call.
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15
};
enum { GPM_METRICS = 4, SLOTS = 128 };
enum { MAX_GPUS = 256, MAX_ROWS = 4096, MAX_MIG_PER_GPU = 64, TEXT = 96, LONG = 4096 };

typedef unsigned int uint;
typedef unsigned long long ull;
typedef void *Handle;

typedef struct { char uuid[TEXT], name[TEXT]; int mig, lost, gpm, cc_major, cc_minor; uint util, cores; ull total, used, reserved; double gpm_value[GPM_METRICS]; } Gpu;
typedef struct { uint gpu, id, profile, start, size; } Instance;
typedef struct { uint gpu, slot, gi, ci, slices, gi_slices, sm, util; ull total, used; double gpm_value[GPM_METRICS]; char uuid[TEXT], name[TEXT]; } Mig;
typedef struct { uint gpu, number, id, slices, sm, count; ull mb; char name[TEXT]; } Profile;
typedef struct { uint pid; int mps; ull used; char on[TEXT]; } Proc;
typedef struct { char kind; int number; char call[TEXT], on[TEXT]; } Fault; /* kind: e, d or h; number: code or ms */

static struct {
    int init, reload;
    char driver[TEXT];
    uint gpus, instances, migs, profiles, procs, faults;
    Gpu gpu[MAX_GPUS];
    Instance instance[MAX_ROWS];
    Mig mig[MAX_ROWS];
    Profile profile[MAX_ROWS];
    Proc proc[MAX_ROWS];
    Fault fault[MAX_ROWS];
} state;
static int opened, opened_at_reload;

/* ------------------------------------------------------------------ the state file */

static const char *find(const char *line, const char *key) {
    char wanted[TEXT];
    const char *at;
    snprintf(wanted, sizeof wanted, " %s=", key);
    at = strstr(line, wanted);
    return at ? at + strlen(wanted) : NULL;
}

static ull number(const char *line, const char *key) {
    const char *at = find(line, key);
    return at ? strtoull(at, NULL, 10) : 0;
}

static void word(const char *line, const char *key, char *into) {
    const char *at = find(line, key);
    size_t length = at ? strcspn(at, " ") : 0;
    if (length >= TEXT) length = TEXT - 1;
    memcpy(into, at ? at : "", length);
    into[length] = 0;
}

/* The name comes last in a line and may hold spaces. */
static void name_of(const char *line, char *into) {
    const char *at = find(line, "name");
    snprintf(into, TEXT, "%.*s", TEXT - 1, at ? at : "");
}

/* nvmlGpmMetricId_t's GRAPHICS_UTIL, SM_UTIL, ANY_TENSOR_UTIL, DRAM_BW_UTIL */
static const uint gpm_id[GPM_METRICS] = {1, 2, 5, 10};

static void read_gpm(const char *line, double *into) {
    static const char *key[GPM_METRICS] = {"util", "smutil", "tensor", "dram"};
    for (int i = 0; i < GPM_METRICS; i++) into[i] = find(line, key[i]) ? strtod(find(line, key[i]), NULL) : -1;
}

static void read_fault(const char *line, const char *number_key) {
    Fault *f = &state.fault[state.faults++];
    f->kind = line[0];
    f->number = number_key ? (int)number(line, number_key) : 0;
    word(line, "call", f->call);
    word(line, "on", f->on);
}

static void read_gpu(const char *line) {
    Gpu *g = &state.gpu[state.gpus++];
    const char *cc = find(line, "cc");
    word(line, "uuid", g->uuid);
    name_of(line, g->name);
    g->mig = find(line, "mig") ? atoi(find(line, "mig")) : -1;
    g->lost = (int)number(line, "lost");
    g->gpm = (int)number(line, "gpm");
    g->util = (uint)number(line, "util");
    g->cores = (uint)number(line, "cores");
    g->total = number(line, "total");
    g->used = number(line, "used");
    g->reserved = number(line, "reserved");
    g->cc_major = g->cc_minor = 0;
    read_gpm(line, g->gpm_value);
    if (cc) sscanf(cc, "%d.%d", &g->cc_major, &g->cc_minor);
}

static void read_line(const char *line) {
    if (!strncmp(line, "init ", 5)) state.init = atoi(line + 5);
    else if (!strncmp(line, "reload ", 7)) state.reload = atoi(line + 7);
    else if (!strncmp(line, "driver ", 7)) snprintf(state.driver, TEXT, "%.*s", TEXT - 1, line + 7);
    else if (!strncmp(line, "gpu ", 4) && state.gpus < MAX_GPUS) read_gpu(line);
    else if (!strncmp(line, "gi ", 3) && state.instances < MAX_ROWS) {
        Instance *i = &state.instance[state.instances++];
        i->gpu = (uint)number(line, "gpu"), i->id = (uint)number(line, "id"), i->profile = (uint)number(line, "profile");
        i->start = (uint)number(line, "start"), i->size = (uint)number(line, "size");
    } else if (!strncmp(line, "mig ", 4) && state.migs < MAX_ROWS) {
        Mig *m = &state.mig[state.migs++];
        m->gpu = (uint)number(line, "gpu"), m->slot = (uint)number(line, "slot");
        m->gi = (uint)number(line, "gi"), m->ci = (uint)number(line, "ci");
        m->slices = (uint)number(line, "slices"), m->gi_slices = (uint)number(line, "gislices");
        m->sm = (uint)number(line, "sm"), m->util = (uint)number(line, "util");
        m->total = number(line, "total"), m->used = number(line, "used");
        read_gpm(line, m->gpm_value);
        word(line, "uuid", m->uuid);
        name_of(line, m->name);
    } else if (!strncmp(line, "profile ", 8) && state.profiles < MAX_ROWS) {
        Profile *p = &state.profile[state.profiles++];
        p->gpu = (uint)number(line, "gpu"), p->number = (uint)number(line, "enum"), p->id = (uint)number(line, "id");
        p->slices = (uint)number(line, "slices"), p->sm = (uint)number(line, "sm");
        p->count = (uint)number(line, "count"), p->mb = number(line, "mb");
        name_of(line, p->name);
    } else if (!strncmp(line, "proc ", 5) && state.procs < MAX_ROWS) {
        Proc *p = &state.proc[state.procs++];
        p->pid = (uint)number(line, "pid"), p->used = number(line, "used"), p->mps = (int)number(line, "mps");
        if (find(line, "used") && !strncmp(find(line, "used"), "none", 4)) p->used = ~0ULL; /* NVML_VALUE_NOT_AVAILABLE */
        word(line, "on", p->on);
    } else if (state.faults >= MAX_ROWS) return;
    else if (!strncmp(line, "error ", 6)) read_fault(line, "code");
    else if (!strncmp(line, "delay ", 6)) read_fault(line, "ms");
    else if (!strncmp(line, "hang ", 5)) read_fault(line, NULL);
}

static void refresh(void) {
    static struct stat seen;
    const char *path = getenv("FAKE_NVML_STATE");
    char line[LONG];
    struct stat now;
    FILE *file;
    if (!path || stat(path, &now)) {
        memset(&state, 0, sizeof state);
        memset(&seen, 0, sizeof seen);
        state.init = DRIVER_NOT_LOADED;
        return;
    }
    if (now.st_ino == seen.st_ino && now.st_size == seen.st_size && now.st_mtim.tv_sec == seen.st_mtim.tv_sec
        && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec) return;
    if (!(file = fopen(path, "r"))) return;
    memset(&state, 0, sizeof state);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        read_line(line);
    }
    fclose(file);
    seen = now;
}

/* ------------------------------------------------------------------ handles: a number, its kind in the high bits */

enum { KIND_GPU = 1, KIND_MIG = 2, KIND_INSTANCE = 3, KIND_COMPUTE = 4 };

static Handle handle(int kind, uint gpu, uint part) {
    return (Handle)(uintptr_t)(((uintptr_t)kind << 24) | ((uintptr_t)gpu << 12) | part);
}
static int kind_of(Handle h) { return (int)((uintptr_t)h >> 24); }
static uint gpu_of(Handle h) { return (uint)((uintptr_t)h >> 12) & 0xfff; }
static uint part_of(Handle h) { return (uint)(uintptr_t)h & 0xfff; }

static Gpu *gpu_at(Handle h) { return gpu_of(h) < state.gpus ? &state.gpu[gpu_of(h)] : NULL; }

static Mig *mig_at(Handle h) {
    for (uint i = 0; kind_of(h) == KIND_MIG && i < state.migs; i++)
        if (state.mig[i].gpu == gpu_of(h) && state.mig[i].slot == part_of(h)) return &state.mig[i];
    return NULL;
}

static Instance *instance_at(Handle h) {
    for (uint i = 0; i < state.instances; i++)
        if (state.instance[i].gpu == gpu_of(h) && state.instance[i].id == part_of(h)) return &state.instance[i];
    return NULL;
}

/* ------------------------------------------------------------------ what every call does first */

/* Shared by all programs that look at this machine, in FAKE_NVML_STATE + ".calls"; slot 0 counts samples not freed. */
typedef struct { char name[56]; long long count; } Slot;

static void count(uint slot, const char *name, int change) {
    static Slot spare[SLOTS], *slots;
    if (!slots) {
        char path[LONG];
        void *mapped = MAP_FAILED;
        int file;
        snprintf(path, sizeof path, "%s.calls", getenv("FAKE_NVML_STATE") ? getenv("FAKE_NVML_STATE") : "/nowhere/at");
        file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (file >= 0 && !ftruncate(file, sizeof spare))
            mapped = mmap(NULL, sizeof spare, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (file >= 0) close(file);
        slots = mapped == MAP_FAILED ? spare : mapped;
    }
    if (slot >= SLOTS) return;
    if (!slots[slot].name[0]) snprintf(slots[slot].name, sizeof slots[slot].name, "%s", name);
    __atomic_fetch_add(&slots[slot].count, change, __ATOMIC_RELAXED);
}

static const Fault *fault(char kind, const char *call, const char *on) {
    for (uint i = 0; i < state.faults; i++) {
        const Fault *f = &state.fault[i];
        if (f->kind == kind && (!strcmp(f->call, "*") || !strcmp(f->call, call))
            && (!strcmp(f->on, "*") || !strcmp(f->on, on))) return f;
    }
    return NULL;
}

static int error_for(const char *call, const char *on) {
    const Fault *f = fault('e', call, on);
    return f ? f->number : OK;
}

static void sleep_ms(int ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left)) {}
}

/* Count the call, take the time it is told to take, and fail as it is told to. */
static int enter(uint slot, const char *call, const char *on) {
    const Fault *slow;
    count(slot, call, 1);
    refresh();
    if ((slow = fault('d', call, on))) sleep_ms(slow->number);
    while (fault('h', call, on)) {
        sleep_ms(10);
        refresh();
    }
    if (!strcmp(call, "nvmlInitWithFlags")) return state.init ? state.init : error_for(call, on);
    if (!opened || opened_at_reload != state.reload) return UNINITIALIZED;
    if (state.init) return state.init;
    return error_for(call, on);
}

static const char *uuid_of(Handle h) {
    Mig *mig = mig_at(h);
    return mig ? mig->uuid : gpu_at(h) ? gpu_at(h)->uuid : "";
}

/* A call on a device: is it still there? */
static int enter_on(uint slot, const char *call, Handle h) {
    int code;
    refresh();
    code = enter(slot, call, uuid_of(h));
    if (code) return code;
    if (!gpu_at(h)) return INVALID_ARGUMENT;
    if (gpu_at(h)->lost) return GPU_IS_LOST;
    return kind_of(h) == KIND_MIG && !mig_at(h) ? NOT_FOUND : OK;
}
#define ENTER(on) do { int code_ = enter(__COUNTER__ + 1, __func__, on); if (code_) return code_; } while (0)
#define CHECK(h) do { int code_ = enter_on(__COUNTER__ + 1, __func__, h); if (code_) return code_; } while (0)

/* ------------------------------------------------------------------ the library */

int nvmlInitWithFlags(uint flags) {
    (void)flags;
    ENTER("");
    if (opened_at_reload != state.reload) opened = 0;
    opened_at_reload = state.reload;
    opened++;
    return OK;
}

int nvmlShutdown(void) {
    ENTER("");
    opened--;
    return OK;
}

const char *nvmlErrorString(int code) {
    static char text[64];
    snprintf(text, sizeof text, "Fake error %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *version, uint length) {
    ENTER("");
    snprintf(version, length, "%s", state.driver);
    return OK;
}

/* ------------------------------------------------------------------ whole GPUs */

int nvmlDeviceGetCount_v2(uint *count) {
    ENTER("");
    *count = state.gpus;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(uint index, Handle *device) {
    refresh();
    ENTER(index < state.gpus ? state.gpu[index].uuid : "");
    if (index >= state.gpus) return INVALID_ARGUMENT;
    if (state.gpu[index].lost) return GPU_IS_LOST;
    *device = handle(KIND_GPU, index, 0);
    return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Handle *device) {
    ENTER(uuid);
    for (uint i = 0; i < state.gpus; i++)
        if (!strcmp(state.gpu[i].uuid, uuid)) {
            *device = handle(KIND_GPU, i, 0);
            return state.gpu[i].lost ? GPU_IS_LOST : OK;
        }
    for (uint i = 0; i < state.migs; i++)
        if (!strcmp(state.mig[i].uuid, uuid)) {
            *device = handle(KIND_MIG, state.mig[i].gpu, state.mig[i].slot);
            return gpu_at(*device) && gpu_at(*device)->lost ? GPU_IS_LOST : OK;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(Handle device, char *uuid, uint length) {
    CHECK(device);
    snprintf(uuid, length, "%s", mig_at(device) ? mig_at(device)->uuid : gpu_at(device)->uuid);
    return OK;
}

int nvmlDeviceGetName(Handle device, char *name, uint length) {
    CHECK(device);
    snprintf(name, length, "%s", mig_at(device) ? mig_at(device)->name : gpu_at(device)->name);
    return OK;
}

typedef struct { ull total, free, used; } Memory;
typedef struct { uint version; ull total, reserved, free, used; } Memory2;

int nvmlDeviceGetMemoryInfo(Handle device, Memory *memory) {
    Mig *mig;
    Gpu *gpu;
    CHECK(device);
    mig = mig_at(device), gpu = gpu_at(device);
    memory->total = mig ? mig->total : gpu->total;
    memory->used = mig ? mig->used : gpu->used + gpu->reserved; /* the first version counts what the driver keeps */
    memory->free = memory->total - memory->used;
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(Handle device, Memory2 *memory) {
    Mig *mig;
    Gpu *gpu;
    CHECK(device);
    mig = mig_at(device), gpu = gpu_at(device);
    memory->total = mig ? mig->total : gpu->total;
    memory->used = mig ? mig->used : gpu->used;
    memory->reserved = mig ? 0 : gpu->reserved;
    memory->free = memory->total - memory->used - memory->reserved;
    return OK;
}

typedef struct { uint gpu, memory; } Utilization;

int nvmlDeviceGetUtilizationRates(Handle device, Utilization *use) {
    CHECK(device);
    if (kind_of(device) == KIND_MIG || gpu_at(device)->mig == 1) return NOT_SUPPORTED; /* nvml.h: not on MIG */
    use->gpu = gpu_at(device)->util;
    use->memory = 0;
    return OK;
}

int nvmlDeviceGetNumGpuCores(Handle device, uint *cores) {
    CHECK(device);
    *cores = gpu_at(device)->cores;
    return *cores ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetCudaComputeCapability(Handle device, int *major, int *minor) {
    CHECK(device);
    *major = gpu_at(device)->cc_major;
    *minor = gpu_at(device)->cc_minor;
    return OK;
}

/* ------------------------------------------------------------------ processes */

typedef struct { uint pid; ull used; uint gpu_instance, compute_instance; } ProcessInfo;

static int list_processes(Handle device, uint *room, ProcessInfo *into, int mps) {
    Mig *mig = mig_at(device);
    const char *on = mig ? mig->uuid : gpu_at(device)->uuid;
    uint count = 0, asked = *room;
    for (uint i = 0; i < state.procs; i++) {
        Proc *p = &state.proc[i];
        if (p->mps != mps || strcmp(p->on, on)) continue;
        if (count < asked)
            into[count] = (ProcessInfo){p->pid, p->used, mig ? mig->gi : 0xFFFFFFFFu, mig ? mig->ci : 0xFFFFFFFFu};
        count++;
    }
    *room = count;
    return count > asked ? INSUFFICIENT_SIZE : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Handle device, uint *room, ProcessInfo *into) {
    CHECK(device);
    return list_processes(device, room, into, 0);
}

int nvmlDeviceGetComputeRunningProcesses_v2(Handle device, uint *room, ProcessInfo *into) {
    CHECK(device);
    return list_processes(device, room, into, 0);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(Handle device, uint *room, ProcessInfo *into) {
    CHECK(device);
    return list_processes(device, room, into, 1);
}

/* ------------------------------------------------------------------ MIG */

int nvmlDeviceGetMigMode(Handle device, uint *current, uint *pending) {
    CHECK(device);
    if (gpu_at(device)->mig < 0) return NOT_SUPPORTED;
    *current = *pending = (uint)gpu_at(device)->mig;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(Handle device, uint *count) {
    CHECK(device);
    *count = 7;
    for (uint i = 0; i < state.migs; i++)
        if (state.mig[i].gpu == gpu_of(device) && state.mig[i].slot >= *count) *count = state.mig[i].slot + 1;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Handle device, uint index, Handle *mig) {
    CHECK(device);
    *mig = handle(KIND_MIG, gpu_of(device), index);
    return mig_at(*mig) ? error_for(__func__, mig_at(*mig)->uuid) : NOT_FOUND;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle mig, Handle *device) {
    CHECK(mig);
    *device = handle(KIND_GPU, gpu_of(mig), 0);
    return OK;
}

int nvmlDeviceIsMigDeviceHandle(Handle device, uint *is_mig) {
    CHECK(device);
    *is_mig = kind_of(device) == KIND_MIG;
    return OK;
}

int nvmlDeviceGetGpuInstanceId(Handle mig, uint *id) {
    CHECK(mig);
    if (!mig_at(mig)) return NOT_SUPPORTED;
    *id = mig_at(mig)->gi;
    return OK;
}

int nvmlDeviceGetComputeInstanceId(Handle mig, uint *id) {
    CHECK(mig);
    if (!mig_at(mig)) return NOT_SUPPORTED;
    *id = mig_at(mig)->ci;
    return OK;
}

typedef struct { uint sm, copy, dec, enc, jpeg, ofa, gi_slices, ci_slices; ull mb; } Attributes;

int nvmlDeviceGetAttributes_v2(Handle mig, Attributes *a) {
    CHECK(mig);
    if (!mig_at(mig)) return NOT_SUPPORTED;
    *a = (Attributes){.sm = mig_at(mig)->sm, .gi_slices = mig_at(mig)->gi_slices, .ci_slices = mig_at(mig)->slices,
                      .mb = mig_at(mig)->total >> 20};
    return OK;
}

typedef struct {
    uint version, id, p2p, slices, count, sm, copy, dec, enc, jpeg, ofa;
    ull mb;
    char name[96];
} ProfileInfo;

int nvmlDeviceGetGpuInstanceProfileInfoV(Handle device, uint number, ProfileInfo *info) {
    CHECK(device);
    for (uint i = 0; i < state.profiles; i++) {
        Profile *p = &state.profile[i];
        if (p->gpu != gpu_of(device) || p->number != number) continue;
        info->id = p->id, info->slices = p->slices, info->count = p->count, info->sm = p->sm, info->mb = p->mb;
        snprintf(info->name, sizeof info->name, "%s", p->name);
        return OK;
    }
    return NOT_SUPPORTED;
}

int nvmlDeviceGetGpuInstances(Handle device, uint profile, Handle *into, uint *count) {
    CHECK(device);
    *count = 0;
    for (uint i = 0; i < state.instances; i++)
        if (state.instance[i].gpu == gpu_of(device) && state.instance[i].profile == profile)
            into[(*count)++] = handle(KIND_INSTANCE, gpu_of(device), state.instance[i].id);
    return OK;
}

int nvmlDeviceGetGpuInstanceById(Handle device, uint id, Handle *instance) {
    CHECK(device);
    *instance = handle(KIND_INSTANCE, gpu_of(device), id);
    return instance_at(*instance) ? OK : NOT_FOUND;
}

typedef struct { Handle device; uint id, profile, start, size; } InstanceInfo;

int nvmlGpuInstanceGetInfo(Handle instance, InstanceInfo *info) {
    Instance *i;
    CHECK(instance);
    if (!(i = instance_at(instance))) return INVALID_ARGUMENT;
    *info = (InstanceInfo){handle(KIND_GPU, i->gpu, 0), i->id, i->profile, i->start, i->size};
    return OK;
}

int nvmlGpuInstanceGetComputeInstanceById(Handle instance, uint id, Handle *compute) {
    CHECK(instance);
    for (uint i = 0; i < state.migs; i++)
        if (state.mig[i].gpu == gpu_of(instance) && state.mig[i].gi == part_of(instance) && state.mig[i].ci == id) {
            *compute = handle(KIND_COMPUTE, gpu_of(instance), id);
            return OK;
        }
    return NOT_FOUND;
}

/* ------------------------------------------------------------------ GPM: use of an instance, from two samples */

typedef struct { int whole; uint gpu, gi; double value[GPM_METRICS]; struct timespec at; char on[TEXT]; } Sample;
typedef struct { uint id; int code; double value; const char *text[3]; } Metric;
typedef struct { uint version, count; Sample *first, *second; Metric metric[]; } Metrics;
typedef struct { uint version, supported; } Support;

int nvmlGpmQueryDeviceSupport(Handle device, Support *support) {
    CHECK(device);
    support->supported = (uint)gpu_at(device)->gpm;
    return OK;
}

int nvmlGpmSampleAlloc(Sample **sample) {
    ENTER("");
    if (!(*sample = calloc(1, sizeof **sample))) return 20;
    count(0, "samples not freed", 1);
    return OK;
}

/* Frees also after the driver was closed, as the real one does: the memory is the program's own. */
int nvmlGpmSampleFree(Sample *sample) {
    count(__COUNTER__ + 1, __func__, 1);
    free(sample);
    count(0, "samples not freed", -1);
    return OK;
}

static void fill(Sample *sample, int whole, uint gpu, uint gi, const double *value, const char *on) {
    *sample = (Sample){.whole = whole, .gpu = gpu, .gi = gi};
    memcpy(sample->value, value, sizeof sample->value);
    snprintf(sample->on, TEXT, "%s", on);
    clock_gettime(CLOCK_MONOTONIC, &sample->at);
}

int nvmlGpmSampleGet(Handle device, Sample *sample) {
    CHECK(device);
    if (!gpu_at(device)->gpm || gpu_at(device)->mig == 1) return NOT_SUPPORTED;
    fill(sample, 1, gpu_of(device), 0, gpu_at(device)->gpm_value, gpu_at(device)->uuid);
    return OK;
}

int nvmlGpmMigSampleGet(Handle device, uint gi, Sample *sample) {
    CHECK(device);
    if (!gpu_at(device)->gpm) return NOT_SUPPORTED;
    for (uint i = 0; i < state.migs; i++)
        if (state.mig[i].gpu == gpu_of(device) && state.mig[i].gi == gi) {
            fill(sample, 0, gpu_of(device), gi, state.mig[i].gpm_value, state.mig[i].uuid);
            return OK;
        }
    return NOT_FOUND;
}

static int metric_of(const Sample *sample, uint id, double apart, double *value) {
    char call[TEXT];
    int code;
    snprintf(call, sizeof call, "gpm:%u", id);
    if ((code = error_for(call, sample->on))) return code;
    for (int i = 0; i < GPM_METRICS; i++)
        if (gpm_id[i] == id && sample->value[i] >= 0) {
            *value = sample->value[i];
            return apart < 0.1 ? INVALID_ARGUMENT : OK;
        }
    return NOT_SUPPORTED;
}

int nvmlGpmMetricsGet(Metrics *metrics) {
    Sample *a = metrics->first, *b = metrics->second;
    double apart;
    ENTER(b ? b->on : "");
    if (metrics->version != 1 || !a || !b || a->whole != b->whole || a->gpu != b->gpu || a->gi != b->gi)
        return INVALID_ARGUMENT;
    apart = (double)(b->at.tv_sec - a->at.tv_sec) + (double)(b->at.tv_nsec - a->at.tv_nsec) / 1e9;
    for (uint i = 0; i < metrics->count; i++)
        metrics->metric[i].code = metric_of(b, metrics->metric[i].id, apart, &metrics->metric[i].value);
    return OK;
}

/* ------------------------------------------------------------------ libcuda.so.1
 *
 * As much of it as tests/gpu/work.py calls; a copy of this library under that name has it. Each function checks what it
 * is given. FAKE_CUDA_INIT is what cuInit answers (100: no device).
 */

enum { CUDA_OK = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201 };
enum { DEVICE = 7, CONTEXT = 11, MEMORY = 1 << 20 };
static int ready, bound;
static size_t held;

int cuInit(unsigned flags) {
    const char *told = getenv("FAKE_CUDA_INIT");
    ready = !told;
    return flags ? INVALID_VALUE : told ? atoi(told) : CUDA_OK;
}
int cuDeviceGet(int *device, int ordinal) {
    *device = DEVICE;
    return !ready ? NOT_INITIALIZED : ordinal ? INVALID_VALUE : CUDA_OK;
}
int cuCtxCreate_v2(void **context, unsigned flags, int device) {
    *context = (void *)(uintptr_t)CONTEXT;
    bound = 1;
    return flags || device != DEVICE ? INVALID_VALUE : CUDA_OK;
}
int cuMemAlloc_v2(uint64_t *memory, size_t size) {
    *memory = MEMORY;
    held = size;
    return !bound ? INVALID_CONTEXT : size ? CUDA_OK : INVALID_VALUE;
}
int cuMemsetD8_v2(uint64_t memory, unsigned char value, size_t size) {
    return memory != MEMORY || value || size != held ? INVALID_VALUE : CUDA_OK;
}
int cuCtxSynchronize(void) { return bound ? CUDA_OK : INVALID_CONTEXT; }

/* The NVML calls of one gpuwatch fast pass and one medium pass, from C: what the driver alone costs.
 * cc -O2 -o nvml_pass bench/nvml_pass.c -ldl && ./nvml_pass PASSES
 * Prints per GPU: index, fast pass median and p99 in microseconds, medium pass median and p99. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void *device;
typedef struct { unsigned int gpu, memory; } utilization;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned int id, scope; long long time, latency; unsigned int type; int code; union { double d; unsigned long long u; } value; } field;
typedef struct { unsigned int version; int margin; } margin;
typedef struct { unsigned int max, high, partial, low, none; } histogram;
typedef struct { unsigned long long total, free, used; } bar1;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } process;
typedef struct { unsigned int id; int code; double value; char *names[3]; } gpm_metric;
typedef struct { unsigned int version, count; void *first, *second; gpm_metric metrics[333]; } gpm_request;

static void *library;
static void *symbol(const char *name) { return dlsym(library, name); }
#define CALL(name, ...) do { static int (*f)(); if (!f) f = (int (*)())symbol(name); if (f) f(__VA_ARGS__); } while (0)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static void ask_fields(device gpu, const unsigned int *ids, int count, unsigned int scope) {
    field fields[16];
    memset(fields, 0, sizeof fields);
    for (int i = 0; i < count; i++) { fields[i].id = ids[i]; fields[i].scope = scope; }
    CALL("nvmlDeviceGetFieldValues", gpu, count, fields);
}

static void processes(const char *unused, device gpu) {
    process list[64];
    unsigned int count = 64;
    (void)unused;
    CALL("nvmlDeviceGetComputeRunningProcesses_v3", gpu, &count, list);
    count = 64;
    CALL("nvmlDeviceGetGraphicsRunningProcesses_v3", gpu, &count, list);
    count = 64;
    CALL("nvmlDeviceGetMPSComputeRunningProcesses_v3", gpu, &count, list);
}

static void fast(device gpu) {
    static const unsigned int ids[] = {82, 185, 186};
    utilization rates;
    memory_v2 memory = {33554472, 0, 0, 0, 0};
    unsigned int value, period;
    unsigned long long reasons;
    CALL("nvmlDeviceGetUtilizationRates", gpu, &rates);
    CALL("nvmlDeviceGetEncoderUtilization", gpu, &value, &period);
    CALL("nvmlDeviceGetDecoderUtilization", gpu, &value, &period);
    CALL("nvmlDeviceGetJpgUtilization", gpu, &value, &period);
    CALL("nvmlDeviceGetOfaUtilization", gpu, &value, &period);
    CALL("nvmlDeviceGetMemoryInfo_v2", gpu, &memory);
    CALL("nvmlDeviceGetTemperature", gpu, 0, &value);
    CALL("nvmlDeviceGetPowerUsage", gpu, &value);
    for (int clock = 1; clock < 4; clock++) CALL("nvmlDeviceGetClockInfo", gpu, clock, &value);
    CALL("nvmlDeviceGetPerformanceState", gpu, &value);
    CALL("nvmlDeviceGetCurrentClocksEventReasons", gpu, &reasons);
    ask_fields(gpu, ids, 3, 0);
    processes("", gpu);
}

static void medium(device gpu, gpm_request *gpm, void **samples, int turn, int links) {
    static const unsigned int policies[] = {74, 75, 76, 77, 79, 269, 270, 271}, action[] = {230}, replays[] = {94}, carried[] = {138, 139};
    static const unsigned int link_count[] = {91}, speed[] = {164};
    static const int locations[] = {2, 7};
    unsigned int value, other, pair[4];
    unsigned long long count;
    margin limit = {0x1000008, 0};
    histogram banks;
    bar1 window;
    CALL("nvmlDeviceGetTotalEnergyConsumption", gpu, &count);
    CALL("nvmlDeviceGetMarginTemperature", gpu, &limit);
    CALL("nvmlDeviceGetPowerManagementLimitConstraints", gpu, &value, &other);
    CALL("nvmlDeviceGetEnforcedPowerLimit", gpu, &value);
    CALL("nvmlDeviceGetPowerManagementDefaultLimit", gpu, &value);
    CALL("nvmlDeviceGetNumFans", gpu, &value);
    ask_fields(gpu, policies, 8, 0);
    CALL("nvmlDeviceGetEccMode", gpu, &value, &other);
    for (int kind = 0; kind < 2; kind++)
        for (int scope = 0; scope < 2; scope++)
            for (int i = 0; i < 2; i++) CALL("nvmlDeviceGetMemoryErrorCounter", gpu, kind, scope, locations[i], &count);
    CALL("nvmlDeviceGetRemappedRows", gpu, &pair[0], &pair[1], &pair[2], &pair[3]);
    CALL("nvmlDeviceGetRowRemapperHistogram", gpu, &banks);
    ask_fields(gpu, action, 1, 0);
    CALL("nvmlDeviceGetMigMode", gpu, &value, &other);
    ask_fields(gpu, replays, 1, 0);
    ask_fields(gpu, link_count, 1, 0);
    for (int link = 0; link < links; link++) CALL("nvmlDeviceGetNvLinkState", gpu, link, &value);
    if (links) { ask_fields(gpu, carried, 2, 0xFFFFFFFF); ask_fields(gpu, speed, 1, 0); }
    CALL("nvmlDeviceGetCurrPcieLinkGeneration", gpu, &value);
    CALL("nvmlDeviceGetCurrPcieLinkWidth", gpu, &value);
    CALL("nvmlDeviceGetBAR1MemoryInfo", gpu, &window);
    CALL("nvmlDeviceGetPersistenceMode", gpu, &value);
    CALL("nvmlDeviceGetComputeMode", gpu, &value);
    CALL("nvmlGpmSampleGet", gpu, samples[turn]);
    gpm->first = samples[1 - turn];
    gpm->second = samples[turn];
    CALL("nvmlGpmMetricsGet", gpm);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    static const unsigned int ids[] = {1, 2, 3, 5, 10, 4, 7, 9, 11, 12, 13, 20, 21, 60, 61};
    int passes = argc > 1 ? atoi(argv[1]) : 200, mediums = passes / 10;
    double *fast_us = malloc(passes * sizeof *fast_us), *medium_us = malloc(mediums * sizeof *medium_us);
    unsigned int count = 0;
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) { fprintf(stderr, "no libnvidia-ml.so.1\n"); return 1; }
    CALL("nvmlInit_v2");
    CALL("nvmlDeviceGetCount_v2", &count);
    for (unsigned int index = 0; index < count; index++) {
        device gpu;
        void *samples[2];
        unsigned int state;
        int links = 0;
        int (*link_state)() = (int (*)())symbol("nvmlDeviceGetNvLinkState");
        gpm_request *gpm = calloc(1, sizeof *gpm);
        CALL("nvmlDeviceGetHandleByIndex_v2", index, &gpu);
        CALL("nvmlGpmSampleAlloc", &samples[0]);
        CALL("nvmlGpmSampleAlloc", &samples[1]);
        while (links < 18 && link_state && !link_state(gpu, links, &state)) links++;
        gpm->version = 1;
        gpm->count = sizeof ids / sizeof *ids;
        for (unsigned int i = 0; i < gpm->count; i++) gpm->metrics[i].id = ids[i];
        fast(gpu);
        medium(gpu, gpm, samples, 0, links);
        for (int pass = 0; pass < passes; pass++) {
            struct timespec pause = {0, 20 * 1000 * 1000};
            double start;
            nanosleep(&pause, NULL);
            start = now();
            fast(gpu);
            fast_us[pass] = now() - start;
            if (pass % 10 == 9) {
                start = now();
                medium(gpu, gpm, samples, (pass / 10) % 2, links);
                medium_us[pass / 10] = now() - start;
            }
        }
        qsort(fast_us, passes, sizeof *fast_us, ascending);
        qsort(medium_us, mediums, sizeof *medium_us, ascending);
        printf("%u %.1f %.1f %.1f %.1f\n", index, fast_us[passes / 2], fast_us[passes * 99 / 100], medium_us[mediums / 2], medium_us[mediums * 99 / 100]);
        free(gpm);
    }
    return 0;
}

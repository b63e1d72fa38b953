/* A made-up NVML for tests: it answers from the text file that $NVML_STUB names, read anew at every call, so that a
 * device can fall ill while it is watched. Lines are KEY=VALUE; a VALUE of !N is the error N, "crash" and "hang" are
 * what they say, and a key that is not there is "not supported" (3). It tests units and error handling, nothing else:
 * what real hardware says is not known here. The old name nvmlInit is left out on purpose: torch would believe in it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *Device;

static int look(const char *key, int at, char *value, size_t room) {
    char line[256], want[64];
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return 999;
    if (at >= 0) snprintf(want, sizeof want, "%s.%d=", key, at);
    else snprintf(want, sizeof want, "%s=", key);
    int found = 3;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, want, strlen(want))) continue;
        char *text = line + strlen(want);
        text[strcspn(text, "\n")] = 0;
        if (!strcmp(text, "crash")) { volatile int *nowhere = NULL; *nowhere = 1; }
        if (!strcmp(text, "hang")) sleep(1000);
        if (text[0] == '!') found = atoi(text + 1);
        else { snprintf(value, room, "%s", text); found = 0; }
        break;
    }
    fclose(file);
    return found;
}

static int number(const char *key, int at, unsigned long long *value) {
    char text[64];
    int error = look(key, at, text, sizeof text);
    if (!error) *value = strtoull(text, NULL, 10);
    return error;
}

static int small(const char *key, Device device, unsigned int *value) {
    unsigned long long wide = 0;
    int error = number(key, (int)(long)device - 1, &wide);
    *value = (unsigned int)wide;
    return error;
}

int nvmlInitWithFlags(unsigned int flags) {
    char text[64];
    (void)flags;
    puts("a library that talks on stdout");
    fflush(stdout);
    int error = look("init", -1, text, sizeof text);
    return error == 3 ? 0 : error;
}
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned int room) { return look("driver", -1, text, room); }
int nvmlDeviceGetCount_v2(unsigned int *count) {
    unsigned long long wide = 0;
    int error = number("count", -1, &wide);
    *count = (unsigned int)wide;
    return error;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int at, Device *device) { *device = (Device)(long)(at + 1); return 0; }
int nvmlDeviceGetUUID(Device device, char *text, unsigned int room) {
    return look("uuid", (int)(long)device - 1, text, room);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    char text[128];
    for (int at = 0; at < 16; at++)
        if (!look("uuid", at, text, sizeof text) && !strcmp(text, uuid)) {
            unsigned int unused;
            *device = (Device)(long)(at + 1);
            int error = small("handle", *device, &unused);
            return error == 3 ? 0 : error;
        }
    return 6;
}
int nvmlDeviceGetName(Device device, char *text, unsigned int room) {
    return look("name", (int)(long)device - 1, text, room);
}
int nvmlDeviceGetUtilizationRates(Device device, unsigned int *rates) {
    rates[1] = 77; /* memory controller: must not be taken for the kernels */
    return small("util", device, &rates[0]);
}
struct memory { unsigned long long total, available, used; };
int nvmlDeviceGetMemoryInfo(Device device, struct memory *memory) {
    int at = (int)(long)device - 1, error = number("memory_total", at, &memory->total);
    return error ? error : number("memory_with_reserve", at, &memory->used);
}
int nvmlDeviceGetPowerUsage(Device device, unsigned int *value) { return small("power_mw", device, value); }
int nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned int *value) { return small("limit_mw", device, value); }
int nvmlDeviceGetTemperature(Device device, int sensor, unsigned int *value) {
    return sensor ? 2 : small("temperature", device, value);
}
int nvmlDeviceGetClockInfo(Device device, int kind, unsigned int *value) {
    return kind == 1 ? small("clock", device, value) : 2;
}
int nvmlDeviceGetMaxClockInfo(Device device, int kind, unsigned int *value) {
    return kind == 1 ? small("clock_max", device, value) : 2;
}
#ifdef OLD_DRIVER
int nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *bits) {
    return number("reasons", (int)(long)device - 1, bits);
}
#else
int nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long *bits) {
    return number("reasons", (int)(long)device - 1, bits);
}
struct memory2 { unsigned int version; unsigned long long total, reserved, available, used; };
int nvmlDeviceGetMemoryInfo_v2(Device device, struct memory2 *memory) {
    int at = (int)(long)device - 1, error = number("memory_total", at, &memory->total);
    if (memory->version != (sizeof *memory | 2u << 24)) return 25;
    return error ? error : number("memory_used", at, &memory->used);
}
#endif

/* A small libnvidia-ml.so.1 whose cards are a text file, so that the real nvidia-ml-py can be driven without hardware.
 *
 * $MOCK_NVML_STATE names an INI file: [system] and [gpu0], [gpu1], … with key=value lines. It is read again whenever it was replaced, so a
 * test changes the hardware under a living process by writing a new file and renaming it. A key that is absent, or "-", is a value that
 * this card does not support.
 *   [system] count, driver, init_err         [gpuN] uuid, name, busid, temp, power_mw, energy_mj, util_gpu, util_mem, mem_total, mem_used,
 *   mem_reserved, clk_sm, clk_mem, reasons, ecc (0 or 1), ecc_ce, ecc_ue, mig, mode, cc, numa, nvlink (a group's number), field<N>
 * Faults, by card: lost=1, err.<Function>=<code>, sleep_ms.<Function>=<ms> (the function's name without "nvmlDevice").
 * $MOCK_NVML_EVENTS names a file of lines "<card> <event type, hex> <data>"; an event set sees what is appended after it was made.
 *
 * Layouts of structures and return codes: NVIDIA's public nvml.h. Built by tests/support/nvml.py.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef unsigned int u32;
typedef unsigned long long u64;
enum { OK, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SIZE = 7, TIMED_OUT = 10, LOST = 15, VERSION = 25 };
#define API __attribute__((visibility("default"))) int
#define MAX_CARDS 32
#define MAX_LINES 2048

struct card { int index; };
struct line { int section; char key[64], value[160]; }; /* section: -1 is [system], else the card */
struct set { long offset; u64 mask[MAX_CARDS]; };
typedef struct card *card_t;
typedef struct { u32 gpu, memory; } rates_t;
typedef struct { u64 total, free, used; } memory_t;
typedef struct { u32 version; u64 total, reserved, free, used; } memory_v2_t;
typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char address[32]; } pci_t;
typedef struct { card_t device; u64 type, data; u32 gpu_instance, compute_instance; } event_t;
typedef struct { u32 id, scope; long long at, latency; int type, code; union { u64 whole; u32 half; double real; } value; } field_t;
_Static_assert(sizeof(memory_t) == 24 && sizeof(memory_v2_t) == 40 && sizeof(pci_t) == 68, "as in nvml.h");
_Static_assert(sizeof(event_t) == 32 && sizeof(field_t) == 40 && sizeof(rates_t) == 8, "as in nvml.h");

static struct card cards[MAX_CARDS];
static struct line lines[MAX_LINES];
static struct stat seen;
static int line_count, users;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static void read_state(void) { /* with the guard held */
    const char *path = getenv("MOCK_NVML_STATE");
    struct stat now;
    char text[256];
    int section = -2;
    FILE *file;
    if (!path || stat(path, &now) || (now.st_ino == seen.st_ino && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec &&
                                      now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_size == seen.st_size)) return;
    if (!(file = fopen(path, "re"))) return;
    seen = now;
    for (line_count = 0; line_count < MAX_LINES && fgets(text, sizeof text, file);) {
        struct line *line = &lines[line_count];
        text[strcspn(text, "\n")] = 0;
        char *equals = strchr(text, '=');
        if (*text == '[') section = strncmp(text, "[gpu", 4) ? -1 : atoi(text + 4);
        else if (equals && section > -2) {
            *equals = 0;
            line->section = section;
            snprintf(line->key, sizeof line->key, "%s", text);
            snprintf(line->value, sizeof line->value, "%s", equals + 1);
            line_count++;
        }
    }
    fclose(file);
}

static int text_of(int section, const char *key, char *out, size_t room) {
    int found = 0;
    pthread_mutex_lock(&guard);
    read_state();
    for (int i = 0; i < line_count; i++)
        if (lines[i].section == section && !strcmp(lines[i].key, key) && strcmp(lines[i].value, "-")) {
            snprintf(out, room, "%s", lines[i].value);
            found = 1;
        }
    pthread_mutex_unlock(&guard);
    return found;
}

static int number_of(int section, const char *key, u64 *out) {
    char text[160];
    if (!text_of(section, key, text, sizeof text)) return 0;
    *out = strtoull(text, NULL, 0);
    return 1;
}

static u64 number_or(int section, const char *key, u64 otherwise) {
    u64 found;
    return number_of(section, key, &found) ? found : otherwise;
}

static void pause_ms(u64 ms) {
    struct timespec left = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };
    while (nanosleep(&left, &left) && errno == EINTR) continue;
}

static int enter(card_t card, const char *function) { /* what every call on a card goes through */
    char key[96];
    u64 value;
    if (!users) return UNINITIALIZED;
    if (card < cards || card >= cards + MAX_CARDS || (u64)card->index >= number_or(-1, "count", 0)) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "sleep_ms.%s", function);
    if (number_of(card->index, key, &value)) pause_ms(value);
    if (number_or(card->index, "lost", 0)) return LOST;
    snprintf(key, sizeof key, "err.%s", function);
    return number_of(card->index, key, &value) ? (int)value : OK;
}
#define ENTER(function) do { int code = enter(card, function); if (code) return code; } while (0)

static int give32(card_t card, const char *key, u32 *out) {
    u64 value;
    if (!number_of(card->index, key, &value)) return NOT_SUPPORTED;
    *out = (u32)value;
    return OK;
}
#define GIVES32(function, key) API nvmlDevice##function(card_t card, u32 *out) { ENTER(#function); return give32(card, key, out); }
#define GIVES64(function, key) API nvmlDevice##function(card_t card, u64 *out) { \
    ENTER(#function); return number_of(card->index, key, out) ? OK : NOT_SUPPORTED; }
#define GIVES_TEXT(function, key) API nvmlDevice##function(card_t card, char *out, u32 room) { \
    ENTER(#function); return text_of(card->index, key, out, room) ? OK : NOT_SUPPORTED; }

/* library */
API nvmlInitWithFlags(u32 flags) {
    (void)flags;
    u64 code = number_or(-1, "init_err", 0);
    if (code) return (int)code;
    for (int i = 0; i < MAX_CARDS; i++) cards[i].index = i;
    users++;
    return OK;
}
API nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API nvmlShutdown(void) { return users ? (users--, OK) : UNINITIALIZED; }
__attribute__((visibility("default"))) const char *nvmlErrorString(int code) {
    return code == LOST ? "GPU is lost" : code == NOT_SUPPORTED ? "Not Supported" : code == 9 ? "Driver Not Loaded" : "Mocked error";
}
API nvmlSystemGetDriverVersion(char *out, u32 room) { return text_of(-1, "driver", out, room) ? OK : NOT_SUPPORTED; }
API nvmlSystemGetCudaDriverVersion(int *out) { *out = (int)number_or(-1, "cuda", 12080); return OK; }
API nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }

/* who */
API nvmlDeviceGetCount_v2(u32 *out) {
    if (!users) return UNINITIALIZED;
    *out = (u32)number_or(-1, "count", 0);
    return OK;
}
API nvmlDeviceGetHandleByIndex_v2(u32 index, card_t *out) {
    if (index >= number_or(-1, "count", 0)) return INVALID_ARGUMENT;
    if (number_or((int)index, "lost", 0)) return LOST;
    *out = &cards[index];
    return OK;
}
GIVES_TEXT(GetUUID, "uuid")
GIVES_TEXT(GetName, "name")
GIVES32(GetComputeMode, "mode")
GIVES32(GetNumaNodeId, "numa")
API nvmlDeviceGetPciInfo_v3(card_t card, pci_t *out) {
    ENTER("GetPciInfo");
    memset(out, 0, sizeof *out);
    if (!text_of(card->index, "busid", out->address, sizeof out->address)) return NOT_SUPPORTED;
    sscanf(out->address, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    return OK;
}
API nvmlDeviceGetCudaComputeCapability(card_t card, int *major, int *minor) {
    u32 both = 0;
    ENTER("GetCudaComputeCapability");
    int code = give32(card, "cc", &both);
    *major = (int)both / 10;
    *minor = (int)both % 10;
    return code;
}
API nvmlDeviceGetMigMode(card_t card, u32 *now, u32 *pending) {
    ENTER("GetMigMode");
    int code = give32(card, "mig", now);
    *pending = *now;
    return code;
}
API nvmlDeviceGetP2PStatus(card_t card, card_t other, int capability, u32 *out) {
    ENTER("GetP2PStatus");
    u64 ours = number_or(card->index, "nvlink", 0), theirs = number_or(other->index, "nvlink", 0);
    *out = capability == 2 && ours && ours == theirs ? 0 : 2; /* 0: they reach each other, 2: not supported by the chipset */
    return OK;
}

/* how */
API nvmlDeviceGetTemperature(card_t card, int sensor, u32 *out) {
    ENTER("GetTemperature");
    return sensor ? NOT_SUPPORTED : give32(card, "temp", out);
}
GIVES32(GetPowerUsage, "power_mw")
GIVES64(GetTotalEnergyConsumption, "energy_mj")
GIVES64(GetCurrentClocksEventReasons, "reasons")
API nvmlDeviceGetClockInfo(card_t card, int which, u32 *out) {
    ENTER("GetClockInfo");
    return give32(card, which == 2 ? "clk_mem" : "clk_sm", out);
}
API nvmlDeviceGetUtilizationRates(card_t card, rates_t *out) {
    ENTER("GetUtilizationRates");
    int code = give32(card, "util_gpu", &out->gpu);
    return code ? code : give32(card, "util_mem", &out->memory);
}
API nvmlDeviceGetMemoryInfo(card_t card, memory_t *out) {
    ENTER("GetMemoryInfo");
    if (!number_of(card->index, "mem_total", &out->total)) return NOT_SUPPORTED;
    out->used = number_or(card->index, "mem_used", 0) + number_or(card->index, "mem_reserved", 0);
    out->free = out->total - out->used;
    return OK;
}
API nvmlDeviceGetMemoryInfo_v2(card_t card, memory_v2_t *out) {
    ENTER("GetMemoryInfo_v2");
    if (out->version != (sizeof *out | 2u << 24)) return VERSION;
    if (!number_of(card->index, "mem_total", &out->total)) return NOT_SUPPORTED;
    out->reserved = number_or(card->index, "mem_reserved", 0);
    out->used = number_or(card->index, "mem_used", 0);
    out->free = out->total - out->used - out->reserved;
    return OK;
}
API nvmlDeviceGetTotalEccErrors(card_t card, int kind, int counter, u64 *out) {
    ENTER("GetTotalEccErrors");
    if (counter || !number_or(card->index, "ecc", 0)) return NOT_SUPPORTED;
    *out = number_or(card->index, kind ? "ecc_ue" : "ecc_ce", 0);
    return OK;
}
API nvmlDeviceGetFieldValues(card_t card, int count, field_t *fields) {
    ENTER("GetFieldValues");
    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "field%u", fields[i].id);
        fields[i].type = 1;
        fields[i].code = number_of(card->index, key, &fields[i].value.whole) ? OK : NOT_SUPPORTED;
    }
    return OK;
}

/* what happens */
API nvmlDeviceGetSupportedEventTypes(card_t card, u64 *out) {
    ENTER("GetSupportedEventTypes");
    *out = 0x8 | 0x2;
    return OK;
}
API nvmlEventSetCreate(struct set **out) {
    struct stat now;
    const char *path = getenv("MOCK_NVML_EVENTS");
    if (!users) return UNINITIALIZED;
    *out = calloc(1, sizeof **out);
    (*out)->offset = path && !stat(path, &now) ? (long)now.st_size : 0;
    return OK;
}
API nvmlEventSetFree(struct set *set) { free(set); return OK; }
API nvmlDeviceRegisterEvents(card_t card, u64 types, struct set *set) {
    ENTER("RegisterEvents");
    if (types & ~(u64)0xa) return NOT_SUPPORTED;
    set->mask[card->index] |= types;
    return OK;
}
static int next_event(struct set *set, event_t *out) {
    char text[96];
    const char *path = getenv("MOCK_NVML_EVENTS");
    FILE *file = path ? fopen(path, "re") : NULL;
    int found = 0;
    if (!file) return 0;
    fseek(file, set->offset, SEEK_SET);
    while (!found && fgets(text, sizeof text, file) && strchr(text, '\n')) {
        u32 index;
        u64 type, data;
        set->offset = ftell(file);
        if (sscanf(text, "%u %llx %llu", &index, &type, &data) == 3 && index < MAX_CARDS && set->mask[index] & type) {
            *out = (event_t){ &cards[index], type, data, ~0u, ~0u };
            found = 1;
        }
    }
    fclose(file);
    return found;
}
API nvmlEventSetWait_v2(struct set *set, event_t *out, u32 timeout_ms) {
    if (!users) return UNINITIALIZED;
    for (u32 waited = 0;; waited += 10) {
        if (next_event(set, out)) return OK;
        if (waited >= timeout_ms) return TIMED_OUT;
        pause_ms(10);
    }
}

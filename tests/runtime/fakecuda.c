/* A stand-in for libcuda.so.1: enough of the driver API to check how it is called. "Device" memory is host memory.
   A launch logs its arguments to the file named by FAKECUDA_LOG. Not a simulator: see xtrace/runtime/simulated.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int R;
typedef unsigned long long D;
static int queries;
static void say(const char *fmt, long a, long b, long c, long d) {
    const char *path = getenv("FAKECUDA_LOG");
    FILE *f = path ? fopen(path, "a") : 0;
    if (f) { fprintf(f, fmt, a, b, c, d); fclose(f); }
}
static R fail(const char *name) { const char *e = getenv("FAKECUDA_FAIL"); if (!e) return 0; size_t n = strlen(name); return strncmp(e, name, n) == 0 && e[n] == '=' ? atoi(e + n + 1) : 0; }
R cuInit(unsigned f) { return fail("cuInit"); }
R cuDriverGetVersion(int *v) { *v = 13000; return 0; }
R cuDeviceGetCount(int *n) { const char *e = getenv("FAKECUDA_COUNT"); *n = e ? atoi(e) : 1; return 0; }
R cuDeviceGet(int *d, int i) { *d = i; return 0; }
R cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, "Fake GPU"); return 0; }
R cuDeviceTotalMem_v2(size_t *n, int d) { *n = 1ull << 33; return 0; }
R cuDeviceGetUuid_v2(unsigned char *u, int d) { for (int i = 0; i < 16; i++) u[i] = i * 17; return 0; }
R cuDeviceGetUuid(unsigned char *u, int d) { return cuDeviceGetUuid_v2(u, d); }
R cuDeviceGetAttribute(int *v, int a, int d) {
    switch (a) { case 75: *v = 9; break; case 76: *v = 0; break; case 16: *v = 132; break; case 38: *v = 1 << 20; break;
                 case 97: *v = 232448; break; case 13: *v = 1980000; break; default: *v = 0; }
    return 0; }
R cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)0x10; return 0; }
R cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
R cuCtxSetCurrent(void *c) { return 0; }
R cuModuleLoadData(void **m, const void *image) { R r = fail("cuModuleLoadData"); if (!r) { say("load %lx\n", *(const unsigned *)image, 0, 0, 0); *m = (void *)0x20; } return r; }
R cuModuleUnload(void *m) { say("unload\n", 0, 0, 0, 0); return 0; }
R cuModuleGetFunction(void **f, void *m, const char *name) { if (!strcmp(name, "nope")) return 500; *f = (void *)0x30; return 0; }
R cuFuncGetAttribute(int *v, int a, void *f) { *v = a == 4 ? 77 : 0; return 0; }
R cuFuncSetAttribute(void *f, int a, int v) { say("attribute %ld=%ld\n", a, v, 0, 0); return 0; }
R cuFuncSetCacheConfig(void *f, int c) { say("cache %ld\n", c, 0, 0, 0); return 0; }
R cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sh, void *s, void **p, void **e) {
    say("launch grid %ld %ld %ld block %ld", gx, gy, gz, bx); say(" %ld %ld shared %ld stream %ld", by, bz, sh, (long)s);
    say(" p0 %lx p1 %ld p2 %lx\n", *(long *)p[0], *(int *)p[1], *(unsigned *)p[2], 0); return fail("cuLaunchKernel"); }
typedef struct { int id; char pad[4]; unsigned v[16]; } Attr;
typedef struct { unsigned gx, gy, gz, bx, by, bz, sh; void *s; Attr *attrs; unsigned n; } Config;
R cuLaunchKernelEx(const Config *c, void *f, void **p, void **e) {
    say("launchex grid %ld block %ld attrs %ld id %ld", c->gx, c->bx, c->n, c->n ? c->attrs[0].id : -1);
    if (c->n) say(" cluster %ld %ld %ld\n", c->attrs[0].v[0], c->attrs[0].v[1], c->attrs[0].v[2], 0); return 0; }
R cuMemAlloc_v2(D *p, size_t n) { R r = fail("cuMemAlloc"); if (r) return r; void *q = 0; if (posix_memalign(&q, 512, n)) return 2; *p = (D)q; return 0; }
R cuMemFree_v2(D p) { free((void *)p); return 0; }
R cuMemsetD32Async(D p, unsigned v, size_t n, void *s) { for (size_t i = 0; i < n; i++) ((unsigned *)p)[i] = v; return 0; }
R cuMemsetD8Async(D p, unsigned char v, size_t n, void *s) { memset((void *)p, v, n); return 0; }
R cuCtxResetPersistingL2Cache(void) { say("release\n", 0, 0, 0, 0); return fail("cuCtxResetPersistingL2Cache"); }
R cuMemcpyHtoD_v2(D d, const void *h, size_t n) { memcpy((void *)d, h, n); return 0; }
R cuMemcpyDtoH_v2(void *h, D d, size_t n) { memcpy(h, (void *)d, n); return 0; }
typedef struct { size_t sx, sy; int st; const void *sh; D sd; void *sa; size_t sp, dx, dy; int dt; void *dh; D dd; void *da; size_t dp, w, h; } Copy2D;
R cuMemcpy2D_v2(const Copy2D *c) {
    if (c->st != 2 || c->dt != 1 || c->sx || c->sy || c->dx || c->dy) return 1;
    for (size_t i = 0; i < c->h; i++) memcpy((char *)c->dh + i * c->dp, (char *)c->sd + i * c->sp, c->w);
    return 0; }
R cuEventCreate(void **e, unsigned f) { *e = malloc(8); return 0; }
R cuEventDestroy_v2(void *e) { free(e); return 0; }
R cuEventRecord(void *e, void *s) { return 0; }
R cuEventQuery(void *e) { R r = fail("cuEventQuery"); return r; }
R cuEventElapsedTime(float *ms, void *a, void *b) { *ms = 0.25f; return 0; }
R cuEventElapsedTime_v2(float *ms, void *a, void *b) { return cuEventElapsedTime(ms, a, b); }
R cuStreamQuery(void *s) { R r = fail("cuStreamQuery"); return r ? r : queries++ % 3 == 0 ? 600 : 0; }
R cuGetProcAddress_v2(const char *symbol, void **p, int version, unsigned long long flags, int *status) {
    static const char *suffix[] = {"_v2", "", 0};
    char name[128];
    for (int i = 0; suffix[i]; i++) {
        snprintf(name, sizeof name, "%s%s", symbol, suffix[i]);
        if ((*p = dlsym(RTLD_DEFAULT, name))) break;
        static void *self; if (!self) self = dlopen(getenv("FAKECUDA_SELF"), RTLD_NOW | RTLD_NOLOAD);
        if (self && (*p = dlsym(self, name))) break;
    }
    if (status) *status = *p ? 0 : 1;
    return *p ? 0 : 500; }
R cuGetProcAddress(const char *symbol, void **p, int version, unsigned long long flags) { return cuGetProcAddress_v2(symbol, p, version, flags, 0); }

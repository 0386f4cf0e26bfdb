// A real call (CALL.REL) with a return address in registers: a device function that is not inlined and is
// called from two places, one of them inside a loop.
__device__ __noinline__ float horner(float x, int n) {
    float y = 1.0f;
    for (int i = 0; i < n; ++i) y = fmaf(y, x, 0.5f + 1.0f / (i + x));
    return y;
}

extern "C" __global__ void call_rel(float* out, const float* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = horner(in[i], n);
    for (int k = 0; k < n; ++k) {
        if (in[i] > 0.25f) sum += horner(sum * 1e-3f, k & 7);
    }
    out[i] = sum;
}

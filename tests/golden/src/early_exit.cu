// Predicated early exits: whole warps and single lanes leave before the end.
extern "C" __global__ void early_exit(float* out, const float* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i];
    if (x < 0.0f) return;
    for (int k = 0; k < 16; ++k) {
        x = x * x + in[(i + k) % n];
        if (x > 1e6f) return;
    }
    out[i] = x;
}

// An indirect branch through a jump table (BRX).
extern "C" __global__ void brx_table(int* out, const int* in, int steps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = in[i], op = in[blockIdx.x];
    for (int k = 0; k < steps; ++k) {
        switch (op) {
            case 0: x = x * 3 + atomicAdd(out, 1); break;
            case 1: x = x ^ (x >> 7); __syncthreads(); break;
            case 2: x = __shfl_xor_sync(~0u, x, 1); break;
            case 3: x = x - in[(i + k) & 1023]; break;
            case 4: x = __popc(x) + k; break;
            case 5: x = __brev(x); break;
            case 6: x = x / (k + 1); break;
            case 7: x = out[i + k] + x; break;
            case 8: x = __clz(x) * x; break;
            case 9: x = atomicMax(out + 1, x); break;
            default: x += 1;
        }
        op = (op + x) & 15;
    }
    out[i + 2] = x;
}

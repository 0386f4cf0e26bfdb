// An indirect branch through a jump table (BRX). The case is the same for all threads of a CTA.
extern "C" __global__ void brx_table(int* out, const int* in, int steps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = in[i], op = in[blockIdx.x];
    for (int k = 0; k < steps; ++k) {
        switch (op) {
            case 0: x = x * 3 + k; atomicAdd(out, 1); break;
            case 1: x = x ^ (x >> 7); __syncthreads(); break;
            case 2: x = __shfl_xor_sync(~0u, x, 1); break;
            case 3: x = x - in[(i + k) & 1023]; break;
            case 4: x = __popc(x) + k; break;
            case 5: x = __brev(x); break;
            case 6: x = x / (k + 1); break;
            case 7: x = in[(3 * i + k) & 1023] + x; break;
            case 8: x = __clz(x) * x; break;
            case 9: x = x + 5; atomicMax(out + 1, x); break;
            case 10: x = x * x + in[x & 1023]; break;
            case 11: x = x % (k + 3); break;
            case 12: x = __funnelshift_l(x, k, 7); atomicAdd(out, 2); break;
            case 13: x = __mulhi(x, 0x12345679) + in[k & 1023]; break;
            default: x += 1;
        }
        op = (op + in[k & 1023]) & 15;
    }
    out[i + 2] = x;
}

"""Small PTX and TTGIR texts, written for these tests, with the traps that real ones hold."""

PTX = r"""//
// .entry not_a_kernel( in a comment {
.version 8.7
.target sm_90a
.address_size 64

.extern .shared .align 16 .b8 smem[];
.global .align 1 .b8 $str[4] = {95, 95, 67, 85};
.func (.param .b32 out) helper(.param .b32 in)
{
	bar.sync 	0;
	ret;
}
/* block comment with bar.sync 0;
   and a brace } */
.visible .entry kern(
	.param .u64 .ptr .global .align 1 kern_param_0,
	.param .u32 kern_param_1 // the last one
)
.reqntid 128
{
	.reg .pred 	%p<4>;
	.reg .b32 	%r<12>;
	.reg .b64 	%rd<4>;
	.loc	1 93 0                          // source.py:93:0
$L__func_begin0:
	ld.param.b64 	%rd1, [kern_param_0];
	.loc	1 94 0, function_name $L__info_string0, inlined_at 1 93 0 // bar.sync
	// begin inline asm
	cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;
	// end inline asm
	add.s32 	%r1, %r1, 16;
	cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;
	cp.async.commit_group;
	.pragma "nounroll; bar.sync";
$L__BB0_2:                              // wgmma.fence.sync.aligned;
	cp.async.wait_group 	0;
	bar.sync 	0;
	bar.warp.sync 	-1;
	wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r3,%r4,
		%r5,%r6}, %rd1, %rd1, 0, 1, 1, 0, 0;
	wgmma.commit_group.sync.aligned;
	{ .reg .b32 t; mov.b32 t, %r1; }
	wgmma.wait_group.sync.aligned 0;
$L__tmp1:
	setp.lt.s32 	%p1, %r1, 1; @%p1 bra 	$L__BB0_2;
	@!%p2 ret;
	st.global.v2.b32 [%rd1], {%r3, %r4};
	ret;
}
	.file	1 "source.py"
	.section	.debug_info
	{
.b64 $L__tmp1
	}
"""

NO_PARAMETERS = ".version 8.7\n.target sm_90a\n.address_size 64\n.entry k()\n{\n\t.reg .b32 %r<2>;\n\tret;\n}\n"
NO_LIST = ".version 8.7\n.target sm_90a\n.address_size 64\n.entry k\n{ ret; }"

TTGIR = """\
#blocked = #ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [1, 32], warpsPerCTA = [1, 4], order = [1, 0]}>
#mma = #ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 64, 16]}>
#loc = loc("kernel.py":1:0)
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func public @k(%A: !tt.ptr<f16> loc("A"(#loc)), %n: i32 loc("n {"(#loc))) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32 loc(#loc)
    %t0 = ttg.async_copy_global_to_local %a, %b : tensor<64x64x!tt.ptr<f16>, #blocked> -> <64xf16, #s> loc(#loc)
    %t1 = ttg.async_copy_global_to_local %a, %b : tensor<64x64x!tt.ptr<f16>, #blocked> -> <64xf16, #s> loc(#loc)
    %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%x = %c0, %y = %c0) -> (i32, i32)  : i32 {
      %w = ttg.async_wait %t0 {num = 2 : i32} loc(#loc)
      %d = ttng.warp_group_dot %q, %k, %z {isAsync = true} : !x<a> * !x<b> -> tensor<8xf32, #mma> loc(#loc)
      %e:2 = ttng.warp_group_dot_wait %d, %q {pendings = 0 : i32} : tensor<128x64xf32, #mma>, !ttg.memdesc<a> loc(#loc)
      %m = "tt.reduce"(%e) <{axis = 1 : i32}> ({
      ^bb0(%l: f32 loc(#loc), %o: f32 loc(#loc)):
        %u = arith.maxnumf %l, %o : f32 loc(#loc)
        tt.reduce.return %u : f32 loc(#loc)
      }) : (tensor<128x64xf32, #mma>) -> tensor<128xf32, #ttg.slice<{dim = 1, parent = #mma}>> loc(#loc)
      scf.yield %m, %y : i32, i32 loc(#loc)
    } loc(#loc)
    %f = "tt.reduce"(%g) <{axis = 1 : i32}> ({
    ^bb0(%l: f32 loc(#loc), %o: f32 loc(#loc)):
      tt.reduce.return %l : f32 loc(#loc)
    }) : (tensor<1x4096xf32, #blocked>) -> tensor<1xf32, #ttg.slice<{dim = 1, parent = #blocked}>> loc(#loc)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
"""

"""Short names: what people read instead of a page of template arguments."""

from __future__ import annotations

import pytest

from xtrace.image.names import MAX_READ, short_name, short_names

FLASH = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<"
    "2, cute::tuple<cute::C<1>, cute::C<1>>, cutlass::bfloat16_t>, flash::{}>>>"
    "(flash::enable_sm90_or_later<int>::Params)"
)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("gemm_bf16", "gemm_bf16"),
        ("triton_poi_fused.0d1d", "triton_poi_fused.0d1d"),
        ("_Z3fooU", "_Z3fooU"),
        ("void ns::inner::kernel<int>(int)", "kernel<int>"),
        ("kernel(float*, int)", "kernel"),
        ("unsigned int ns::kernel<ns::T, 1>(ns::T)", "kernel<T, 1>"),
        ("std::enable_if<true, void>::type ns::kernel<int>(int)", "kernel<int>"),
        ("void ns::(anonymous namespace)::kernel<int>(int, void (*)(int))", "kernel<int>"),
        ("void Outer<int>::inner<float>(float)", "Outer<int>::inner<float>"),
        ("void ns::kernel<(ns::Kind)3>()", "kernel<(Kind)3>"),
        ("ns::operator<<(float const&, int)", "operator<<"),
        ("ns::Functor::operator()(int)", "operator()"),
    ],
)
def test_return_type_parameters_and_namespaces_go(name: str, short: str) -> None:
    assert short_name(name) == short


def test_a_long_name_is_cut_at_the_limit() -> None:
    name = short_name(FLASH.format("StaticPersistentTileScheduler<false>"))
    assert name == "device_kernel<enable_sm90_or_later<FlashAttnFwdSm90<CollectiveMainloopF…"
    assert len(name) == 72
    assert len(short_name("x" * 500, 20)) == 20


def test_names_that_begin_alike_show_the_last_argument() -> None:
    schedulers = ["StaticTileScheduler<false>", "DynamicTileScheduler<256, 32>", "VarlenTileScheduler<128>"]
    names = short_names([FLASH.format(s) for s in schedulers])
    assert len(set(names)) == 3
    for name, scheduler in zip(names, schedulers, strict=True):
        assert name.startswith("device_kernel<")
        assert scheduler in name
        assert len(name) <= 96


def test_names_that_end_alike_show_where_they_differ() -> None:
    names = short_names([f"void ns::combine<{'ns::T, ' * 40}{n}, ns::Sm90>(int)" for n in (7, 8)])
    assert "7, Sm90>" in names[0]
    assert "8, Sm90>" in names[1]


def test_short_names_alone_are_left_alone() -> None:
    assert short_names(["first", "second", "void k<1>(int)"]) == ["first", "second", "k<1>"]
    assert short_names([]) == []


@pytest.mark.parametrize(
    "name",
    ["a\nerror: fake", "\x1b[31mred", "\u202eevil", "<" * MAX_READ, ">" * 99, "a::" * 20_000, "(" * 999, "void (", "::"]
    + ["operator " * 5000, "a<" * 5000, "void ", "\ud800", "(anonymous namespace)" * 999, ""],
)
def test_hostile_names_stay_one_bounded_printable_line(name: str) -> None:
    for short in (short_name(name), *short_names([name + "x", name + "y"], 72)):
        assert len(short) <= 72
        assert short.isprintable()

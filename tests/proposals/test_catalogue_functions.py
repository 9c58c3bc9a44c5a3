"""The functions that stand in for library calls: right at ragged sizes, and compiling for a GPU."""

from pathlib import Path

import pytest

from gpu_runner.proposals.catalogue import LibraryFunction, function_for
from tests.proposals.interpreted import run_script


def made(op: str, **options: object) -> LibraryFunction:
    function = function_for(op, **options)  # type: ignore[arg-type]
    assert function is not None
    return function


def module(*functions: LibraryFunction) -> dict[str, str]:
    return {
        "candidate.py": functions[0].imports + "\n\n".join(function.text for function in functions)
    }


def test_products_agree_with_torch_at_ragged_sizes(tmp_path: Path) -> None:
    sources = module(
        made("mm", sizes=(70, 50, 33)),
        made("aten.mm.default", name="mm_half", dtype="float16", sizes=(70, 50, 33)),
        made("addmm", alpha=0.5, beta=2.0),
        made("bmm"),
        made("baddbmm"),
    )
    errors = run_script(
        """
        candidate = load("candidate.py")
        a, b = torch.randn(70, 33), torch.randn(50, 33).t()
        A, B = torch.randn(3, 40, 33), torch.randn(33, 3, 70).transpose(0, 1)
        bias, row, batch = torch.randn(50), torch.randn(70, 1), torch.randn(3, 1, 70)
        out = torch.full((50, 70), float("nan")).t()
        candidate.mm(a, b, out=out)
        print(json.dumps({
            "mm": error(candidate.mm(a, b), a @ b),
            "mm_out": error(out, a @ b),
            "mm_half": error(candidate.mm_half(a.half(), b.half()), (a @ b).half()) / 1000,
            "addmm": error(candidate.addmm(bias, a, b), torch.addmm(bias, a, b, alpha=0.5, beta=2.0)),
            "addmm_row": error(candidate.addmm(row, a, b), torch.addmm(row, a, b, alpha=0.5, beta=2.0)),
            "bmm": error(candidate.bmm(A, B), A @ B),
            "baddbmm": error(candidate.baddbmm(batch, A, B), torch.baddbmm(batch, A, B)),
        }))
        """,
        tmp_path,
        sources,
    )
    assert max(errors.values()) < 1e-5, errors


def test_programs_that_stay_walk_over_every_tile_of_a_large_product(tmp_path: Path) -> None:
    """More tiles than programs, and none of the sizes a multiple of a tile's."""
    large = (4096, 8192, 1024)
    sources = module(
        made("mm", dtype="float16", sizes=large), made("addmm", dtype="bfloat16", sizes=large)
    )
    assert "tl.num_programs(0)" in sources["candidate.py"]
    errors = run_script(
        """
        import types
        candidate = load("candidate.py")
        torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(multi_processor_count=3)
        a, b = torch.randn(300, 70).half(), torch.randn(600, 70).half().t()
        bias = torch.randn(600).bfloat16()
        aligned = torch.randn(300, 128).half(), torch.randn(600, 128).half().t()
        full = torch.addmm(bias.float(), a.bfloat16().float(), b.bfloat16().float()).bfloat16()
        print(json.dumps({
            "mm": error(candidate.mm(a, b).float(), (a.float() @ b.float()).half().float()),
            "even": error(candidate.mm(*aligned).float(), (aligned[0].float() @ aligned[1].float()).half().float()),
            "addmm": error(candidate.addmm(bias, a.bfloat16(), b.bfloat16()).float(), full.float()) / 10,
        }))
        """,
        tmp_path,
        sources,
    )
    assert max(errors.values()) < 2e-2, errors


def test_convolutions_agree_with_torch(tmp_path: Path) -> None:
    sources = module(
        made("convolution", name="dense"),
        made("convolution", name="plain", bias=False),
        made("convolution", name="depthwise", template="depthwise_convolution"),
        made("convolution", name="blocks", template="grouped_convolution"),
        made("convolution", name="patches", template="patch_convolution"),
        made("convolution", name="turned", template="transposed_convolution"),
        made("convolution", name="voxels", template="convolution_3d"),
    )
    errors = run_script(
        """
        candidate = load("candidate.py")
        def both(function, x, w, bias, stride, padding, dilation, groups, turned=False):
            arguments = (x, w, bias, stride, padding, dilation, turned, [int(turned)] * len(stride), groups)
            return error(function(*arguments), torch.ops.aten.convolution(*arguments))
        x, bias = torch.randn(2, 6, 11, 9), torch.randn(10)
        last, line = x.to(memory_format=torch.channels_last), torch.randn(2, 6, 37)
        print(json.dumps({
            "plain": both(candidate.plain, x, torch.randn(10, 6, 3, 3), None, [1, 1], [1, 1], [1, 1], 1),
            "strided": both(candidate.dense, x, torch.randn(10, 6, 3, 2), bias, [2, 1], [1, 0], [1, 2], 1),
            "grouped": both(candidate.dense, x, torch.randn(10, 3, 3, 3), bias, [1, 1], [1, 1], [2, 1], 2),
            "last": both(candidate.dense, last, torch.randn(10, 6, 1, 1), bias, [1, 1], [0, 0], [1, 1], 1),
            "line": both(candidate.dense, line, torch.randn(8, 6, 5), torch.randn(8), [2], [2], [1], 1),
            "blocks": both(
                candidate.blocks, x, torch.randn(10, 3, 3, 2), bias, [2, 1], [1, 0], [1, 2], 2
            ),
            "many blocks": both(
                candidate.blocks, torch.randn(2, 15, 9, 7), torch.randn(20, 3, 1, 3), torch.randn(20), [1, 1], [0, 1], [1, 1], 5
            ),
            "patches": both(
                candidate.patches, x, torch.randn(10, 6, 3, 2), bias, [3, 2], [0, 0], [1, 1], 1
            ),
            "patches of a line": both(
                candidate.patches, line, torch.randn(8, 6, 5), torch.randn(8), [5], [0], [1], 1
            ),
            "turned": both(
                candidate.turned, x, torch.randn(6, 5, 3, 2), bias, [2, 3], [1, 0], [1, 1], 2, True
            ),
            "turned line": both(
                candidate.turned, line, torch.randn(6, 8, 4), torch.randn(8), [2], [1], [1], 1, True
            ),
            "turned with more strides than taps": both(
                candidate.turned, x, torch.randn(6, 10, 1, 2), bias, [3, 2], [0, 1], [1, 1], 1, True
            ),
            "turned and dilated": both(
                candidate.voxels, x, torch.randn(6, 10, 2, 2), bias, [2, 1], [1, 1], [2, 3], 1, True
            ),
            "voxels": both(
                candidate.voxels, torch.randn(2, 4, 5, 6, 7), torch.randn(10, 4, 2, 3, 3), bias,
                [1, 2, 1], [0, 1, 1], [1, 1, 2], 1,
            ),
            "depthwise": both(
                candidate.depthwise, x, torch.randn(12, 1, 3, 3), torch.randn(12), [2, 2], [1, 1], [1, 1], 6
            ),
        }))
        """,
        tmp_path,
        sources,
    )
    assert max(errors.values()) < 1e-5, errors


def test_every_function_compiles_for_a_gpu_with_its_precision_and_within_its_shared_memory(
    tmp_path: Path,
) -> None:
    sources = module(
        made("mm"),
        made("mm", name="mm_tf32", precision="tf32"),
        made("baddbmm", dtype="bfloat16"),
        made("convolution", precision="tf32"),
        made("convolution", name="depthwise", template="depthwise_convolution"),
    )
    compiled = run_script(
        """
        candidate = load("candidate.py")
        a, b = torch.empty(256, 256), torch.empty(2, 128, 128, dtype=torch.bfloat16)
        candidate.mm(a, a)
        candidate.mm_tf32(a, a)
        candidate.baddbmm(torch.empty(128, dtype=torch.bfloat16), b, b)
        x, w, bias = torch.empty(2, 64, 16, 16), torch.empty(128, 64, 3, 3), torch.empty(128)
        candidate.convolution(x, w, bias, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        w = torch.empty(64, 1, 3, 3)
        candidate.depthwise(x, w, bias, [1, 1], [1, 1], [1, 1], False, [0, 0], 64)
        print(json.dumps(compiled))
        """,
        tmp_path,
        sources,
        interpret=False,
    )
    assert [(name, dots) for name, _, dots in compiled] == [
        ("mm_kernel", 0),
        ("mm_tf32_kernel", 1),
        ("baddbmm_kernel", 0),
        ("convolution_tiles_kernel", 1),
        ("depthwise_tiles_kernel", 0),
    ]
    assert all(shared <= 227 * 1024 for _, shared, _ in compiled)


def test_an_operation_without_a_template_gives_none() -> None:
    assert function_for("aten._fft_c2c.default") is None


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_the_precision_is_written_into_the_kernel(precision: str) -> None:
    assert f'input_precision="{precision}"' in made("addmm", precision=precision).text

"""What the torch backend promises beyond the shared suite."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

import beamsieve as bs
import beamsieve_spec as spec
from beamsieve.interface import Search, StepInputs
from beamsieve_backends.torch_dense import TorchBackend
from beamsieve_backends.torch_dense.gemm import has_onednn, product_with, true_float32
from beamsieve_backends.torch_dense.products import block_rows
from beamsieve_backends.torch_dense.sums import TilesOfBeams, row_sums, tree_sum
from beamsieve_backends.torch_dense.tiles import expand

CODEBOOKS = (37, 90, 50)
FIELDS = ("tokens", "scores", "keys", "rows", "parents", "finished", "count")


def skewed_index(layout=None) -> bs.Index:
    draw = np.random.default_rng(1)
    sids = np.stack([(draw.random(4000) ** 3 * size).astype(int) for size in CODEBOOKS], 1)
    return bs.Index.build(bs.Catalog.from_arrays(sids, codebooks=CODEBOOKS), layout=layout)


INDEX = skewed_index()


DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def arguments(requests: list[int], widths: list[int], manner: str, size=24):
    """Per step the arguments of a batch; request r's numbers are the same wherever it stands."""
    steps = []
    head_draw = np.random.default_rng(99)
    for step, (places, vocabulary) in enumerate(zip([1, *widths], CODEBOOKS, strict=False)):
        head = head_draw.normal(size=(vocabulary, size)).astype(np.float32)
        draws = [np.random.default_rng([r, step]) for r in requests]
        if manner == "logits":
            logits = np.stack([draw.normal(size=(places, vocabulary)) for draw in draws])
            steps.append({"logits": logits.astype(np.float32)})
        else:
            hidden = np.stack([draw.normal(size=(places, size)) for draw in draws])
            steps.append({"hidden": hidden.astype(np.float32), "head": head})
        if manner == "guided":
            values = [draw.normal(size=(places, vocabulary)) for draw in draws]
            steps[-1]["bonus"] = np.stack(values).astype(np.float32)
            steps[-1]["nudge"] = steps[-1]["bonus"][:, ::-1].copy()
    return steps


def decode(backend: TorchBackend, normalize, requests, widths, manner, projection=None):
    """All steps of a batch, and its beams as NumPy after each."""
    search = Search(INDEX, backend.load(INDEX), len(requests), None)
    batch = len(requests)
    beams = backend.begin(
        search, np.empty((batch, 0), np.int32), np.zeros(batch, np.int64), np.zeros(batch, bool)
    )
    seen = []
    for width, step in zip(widths, arguments(requests, widths, manner), strict=True):
        given: dict[str, Any] = {
            name: torch.from_numpy(value).to(backend.device) for name, value in step.items()
        }
        inputs = StepInputs(width, projection=projection, **given)
        beams = backend.step(beams, inputs, normalize)
        seen.append({name: getattr(beams, name).cpu().numpy() for name in FIELDS})
    return seen


MANNERS = [("hidden", "full"), ("hidden", "selective"), ("logits", None), ("guided", "selective")]
WAYS = [
    (device, normalize, *manner)
    for device in DEVICES
    for normalize in ("all", "catalog")
    for manner in MANNERS
]
WAYS += [("cpu", "catalog", manner, "compiled") for manner in ("hidden", "logits", "guided")]


@pytest.mark.parametrize(("device", "normalize", "manner", "projection"), WAYS)
@pytest.mark.parametrize("widths", [[7, 40, 9], [1, 1, 1], [16, 130, 300]])
def test_a_request_has_the_same_bits_alone_first_last_and_among_many(
    normalize, manner, projection, widths, device
):
    backend = TorchBackend(device)
    alone = decode(backend, normalize, [5], widths, manner, projection)
    for others in (1, 7, 64 if max(widths) < 100 else 12):
        crowd = list(range(100, 100 + others))
        for place in sorted({0, others // 2, others}):
            batch = [*crowd[:place], 5, *crowd[place:]]
            together = decode(backend, normalize, batch, widths, manner, projection)
            for one, many in zip(alone, together, strict=True):
                for name in FIELDS:
                    mine = many[name][place].tobytes()
                    assert one[name][0].tobytes() == mine, (others, place, name)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("library", ["onednn", "blas"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("size", "vocabulary"), [(24, 90), (256, 2048), (7, 33), (100, 513)])
def test_a_block_of_the_full_projection_gives_a_row_the_same_bits_at_every_place(
    library, dtype, size, vocabulary, device
):
    torch.manual_seed(0)
    head = torch.randn(vocabulary, size).to(device, dtype)
    for block in (16, 128):
        rows = torch.randn(block, size).to(device, dtype)
        product = product_with(head, block, library)
        expected = product(rows).clone()
        assert expected.dtype == torch.float32
        for shift in (1, 5, block // 2 + 3):
            assert torch.equal(product(rows.roll(shift, 0)), expected.roll(shift, 0))
        lonely = torch.zeros_like(rows)
        lonely[block // 3] = rows[block // 3]
        assert torch.equal(product(lonely)[block // 3], expected[block // 3])


def test_blocks_follow_the_beams_per_request_alone():
    assert [block_rows(places) for places in (1, 16, 17, 100, 128, 1000)] == [
        16, 16, 32, 128, 128, 256,
    ]  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"gemm": "blas"}, {"tile": "1"}, {"tile": "64"}])
@pytest.mark.parametrize("projection", ["full", "selective"])
def test_tiles_libraries_and_projections_change_no_choice(options, projection):
    widths = [7, 40, 9]
    ours = decode(TorchBackend("cpu", options), "catalog", [1, 2, 3], widths, "hidden", projection)
    plain = decode(TorchBackend("cpu"), "catalog", [1, 2, 3], widths, "hidden", "selective")
    for one, other in zip(ours, plain, strict=True):
        for name in ("tokens", "rows", "parents", "count", "finished"):
            np.testing.assert_array_equal(one[name], other[name])
        np.testing.assert_allclose(one["scores"], other["scores"], rtol=1e-5)


def test_dense_and_sparse_layouts_give_the_same_bits():
    dense, sparse = (
        bs.Engine(skewed_index(layout), backend="torch:cpu") for layout in ("dense", "sparse")
    )
    steps = arguments([1, 2], [7, 40, 9], "hidden")
    results = []
    for engine in (dense, sparse):
        beams = engine.begin(2)
        for width, step in zip([7, 40, 9], steps, strict=True):
            beams = engine.step(beams, width, **step)
        results.append(beams)
    for name in FIELDS:
        assert torch.equal(getattr(results[0], name), getattr(results[1], name))


@pytest.mark.parametrize("manner", ["hidden", "logits"])
def test_all_logits_equal_still_keeps_the_contracts_order(manner):
    backend = TorchBackend("cpu")
    search = Search(INDEX, backend.load(INDEX), 2, None)
    beams = backend.begin(
        search, np.empty((2, 0), np.int32), np.zeros(2, np.int64), np.zeros(2, bool)
    )
    for vocabulary in CODEBOOKS:
        places = beams.rows.shape[1]
        given: dict[str, Any] = (
            {"logits": torch.zeros(2, places, vocabulary)}
            if manner == "logits"
            else {"hidden": torch.zeros(2, places, 4), "head": torch.zeros(vocabulary, 4)}
        )
        beams = backend.step(beams, StepInputs(50, **given), "all")
        for b in range(2):
            count = int(beams.count[b])
            parents, tokens = beams.parents[b, :count], beams.tokens[b, :count, -1]
            pairs = list(zip(parents.tolist(), tokens.tolist(), strict=True))
            assert pairs == sorted(pairs)
    assert torch.equal(beams.tokens[0], beams.tokens[1])


def test_minus_zero_and_zero_are_equal_keys():
    index = bs.Index.build(bs.Catalog.from_arrays(np.arange(4)[:, None], codebooks=(4,)))
    engine = bs.Engine(index, backend="torch:cpu")
    keys = np.array([[[0.0, -0.0, 0.0, -0.0]]], np.float32)
    first = engine.begin(1)
    found = engine.candidates(first, logits=np.zeros((1, 1, 4), np.float32))
    beams = engine.select(first, found, 4, key=keys)
    assert beams.tokens[0, :, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("projection", ["full", "selective"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_inputs_accumulate_and_score_in_float32(dtype, projection, device):
    size, vocabulary = 512, 300
    torch.manual_seed(1)
    hidden = torch.randn(1, 1, size).to(device, dtype)
    head = torch.randn(vocabulary, size).to(device, dtype)
    index = bs.Index.build(
        bs.Catalog.from_arrays(np.arange(0, vocabulary, 3)[:, None], codebooks=(vocabulary,))
    )
    backend = TorchBackend(device)
    search = Search(index, backend.load(index), 1, None)
    beams = backend.begin(
        search, np.empty((1, 0), np.int32), np.zeros(1, np.int64), np.zeros(1, bool)
    )
    beams = backend.step(
        beams, StepInputs(100, hidden=hidden, head=head, projection=projection), "catalog"
    )
    logits = (head[::3].double() @ hidden[0, 0].double()).cpu().numpy()
    expected = spec.log_probabilities(logits, over=range(len(logits)))
    got = np.empty(100)
    got[beams.tokens[0, :, 0].cpu().numpy() // 3] = beams.scores[0].double().cpu().numpy()
    allowed = backend.capabilities.tolerance[str(dtype).removeprefix("torch.")]
    assert (np.abs(got - expected) <= allowed * np.maximum(1, np.abs(expected))).all()


class TestHubs:
    """A row as wide as the codebook, beside many rows with one child."""

    size = 20_000
    beams = 2_000

    def index(self) -> bs.Index:
        first = np.arange(self.beams)
        hub = np.stack([np.zeros(self.size, np.int64), np.arange(self.size)], 1)
        lean = np.stack([first[1:], first[1:] % self.size], 1)
        return bs.Index.build(
            bs.Catalog.from_arrays(np.concatenate([hub, lean]), codebooks=(self.beams, self.size))
        )

    def test_one_hub_costs_what_it_holds_and_not_beams_times_its_width(self):
        index = self.index()
        engine = bs.Engine(index, backend="torch:cpu")
        beams = engine.step(
            engine.begin(1), self.beams, logits=np.zeros((1, 1, self.beams), np.float32)
        )
        hidden, head = torch.randn(1, self.beams, 4), torch.randn(self.size, 4)
        tables = beams.search.tables.tables
        inputs = StepInputs(50, hidden=hidden, head=head, projection="selective")
        tiles = expand(tables[1], beams, block_rows(self.beams))
        degrees = self.size + self.beams - 1
        assert tiles.tokens.numel() <= degrees + self.beams * tables[1].tile
        with torch.profiler.profile(profile_memory=True) as profile:
            engine._backend.step(beams, inputs, "catalog")
        largest = max(event.self_cpu_memory_usage for event in profile.events() or [])
        assert largest < 8 * self.beams * self.size // 10

    def test_a_hub_of_very_many_tiles_is_summed_in_groups(self):
        index = self.index()
        draw = np.random.default_rng(2)
        logits = draw.normal(size=(1, 1, self.size)).astype(np.float32)
        expected = spec.log_probabilities(logits[0, 0].astype(float), over=range(self.size))
        for options in ("", "?tile=1"):
            engine = bs.Engine(index, backend=f"torch:cpu{options}")
            beams = engine.step(engine.begin(1, prefix=[[0]]), 30, logits=logits)
            best = np.argsort(-expected)[:30]
            assert beams.tokens[0, :, 1].tolist() == best.tolist()
            np.testing.assert_allclose(beams.scores[0], expected[best], rtol=1e-6)


class TestSums:
    def test_a_sum_does_not_depend_on_how_far_its_row_is_padded(self):
        values = torch.randn(1, 64)
        for used in (1, 3, 20, 33, 64):
            row = values.clone()
            row[0, used:] = 0
            short = row[:, : 1 << (used - 1).bit_length()].clone()
            assert torch.equal(tree_sum(short), tree_sum(row))

    @pytest.mark.parametrize("counts", [[3, 0, 5], [64, 1], [65, 2, 0, 300], [5000, 1]])
    def test_sums_and_maxima_per_beam(self, counts):
        ends = np.cumsum([0, *counts])
        values = torch.randn(int(ends[-1]))
        beam = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
        rank = torch.cat([torch.arange(count) for count in counts])
        whose = TilesOfBeams(beam, rank, len(counts), max(counts))
        parts = [values[start:end].double() for start, end in pairwise(ends.tolist())]
        expected = torch.stack([part.sum() for part in parts])
        assert torch.allclose(whose.sum(values).double(), expected, atol=1e-4)
        for largest, part in zip(whose.max(values), parts, strict=True):
            assert largest == (part.max() if len(part) else -torch.inf)

    def test_a_beam_sums_to_the_same_bits_beside_a_hub(self):
        values = torch.randn(40)
        alone = TilesOfBeams(torch.zeros(40, dtype=torch.int64), torch.arange(40), 1, 40)
        crowd = torch.cat([values, torch.randn(900)])
        beam = torch.repeat_interleave(torch.arange(2), torch.tensor([40, 900]))
        rank = torch.cat([torch.arange(40), torch.arange(900)])
        beside = TilesOfBeams(beam, rank, 2, 900)
        assert torch.equal(alone.sum(values)[0], beside.sum(crowd)[0])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [1, 2, 8, 16, 32, 64])
def test_a_rows_sum_does_not_depend_on_its_neighbours(size, device):
    values = torch.rand(2500, size, generator=torch.Generator().manual_seed(size)).to(device)
    threads = torch.get_num_threads()
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            expected = torch.cat([row_sums(row[None].clone()) for row in values[:300]])
            for rows in (1, 2, 3, 17, 511, 512, 513, 2500):
                for first in (0, 1, 5):
                    found = row_sums(values[first : first + rows].clone())
                    some = min(len(found), 300 - first)
                    assert torch.equal(found[:some], expected[first : first + some])
    finally:
        torch.set_num_threads(threads)


def test_float32_products_stay_float32_where_the_process_allows_less():
    torch.manual_seed(0)
    hidden, head = torch.randn(4, 40, 64), torch.randn(90, 64)
    engine = bs.Engine(INDEX, backend="torch:cpu?gemm=blas")
    beams = engine.step(engine.begin(4), 40, logits=torch.zeros(4, 1, 37))
    inputs = StepInputs(20, hidden=hidden, head=head, projection="full")
    exact = engine._backend.step(beams, inputs, "catalog")
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with true_float32(torch.device("cpu")):
            settings: Any = torch.backends.mkldnn
            assert settings.matmul.fp32_precision == "ieee"
        again = engine._backend.step(beams, inputs, "catalog")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(exact.scores, again.scores)


@pytest.mark.parametrize("library", ["onednn", "blas"])
@pytest.mark.parametrize("projection", ["full", "selective"])
def test_autocast_around_a_step_changes_nothing(library, projection):
    backend = TorchBackend("cpu", {"gemm": library})
    plain = decode(backend, "catalog", [1, 2], [7, 20, 9], "hidden", projection)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = decode(backend, "catalog", [1, 2], [7, 20, 9], "hidden", projection)
    for one, other in zip(plain, inside, strict=True):
        for name in FIELDS:
            np.testing.assert_array_equal(one[name], other[name])


def test_beams_stay_what_they_are_and_no_gradient_is_recorded():
    engine = bs.Engine(INDEX, backend="torch:cpu")
    first = engine.begin(1)
    before = {name: getattr(first, name).clone() for name in FIELDS}
    hidden = torch.randn(1, 1, 8, requires_grad=True)
    beams = engine.step(first, 5, hidden=hidden, head=torch.randn(37, 8))
    assert not beams.scores.requires_grad
    for name in FIELDS:
        assert torch.equal(getattr(first, name), before[name])


def test_the_tables_bytes_are_counted():
    backend = TorchBackend("cpu", {"tables": "index"})
    tables = backend.load(INDEX)
    starts = sum(table.starts.nbytes for table in INDEX.tables)
    packed = sum(table.packed.nbytes for table in INDEX.tables if table.packed is not None)
    unpacked = sum(table.entries for table in INDEX.tables if table.packed is None)
    least = starts + packed + 2 * unpacked
    assert least <= backend.device_bytes(tables) <= 1.1 * least + 3 * 2 * 64

    plain = TorchBackend("cpu")
    rows, entries = (sum(getattr(t, what) for t in INDEX.tables) for what in ("rows", "entries"))
    least = 4 * rows + 2 * entries
    assert least <= plain.device_bytes(plain.load(INDEX)) <= least + 3 * 2 * 64


@pytest.mark.parametrize("device", DEVICES)
def test_tables_give_the_same_beams_in_either_form(device):
    found = []
    for form in ("index", "plain"):
        engine = bs.Engine(INDEX, backend=f"torch:{device}?tables={form}")
        beams = engine.begin(batch=2)
        for level, size in enumerate(INDEX.codebooks):
            generator = torch.Generator().manual_seed(level)
            logits = torch.randn(2, beams.width, size, generator=generator)
            beams = engine.step(beams, 8, logits=logits.to(device))
        found.append(beams)
    for name in ("tokens", "scores", "rows", "parents", "finished"):
        assert torch.equal(getattr(found[0], name), getattr(found[1], name))


@pytest.mark.skipif(not has_onednn(), reason="this PyTorch has no oneDNN product to call")
def test_onednn_and_blas_agree():
    torch.manual_seed(0)
    rows, head = torch.randn(32, 256), torch.randn(500, 256)
    ours = product_with(head, 32, "onednn")(rows)
    assert torch.allclose(ours, product_with(head, 32, "blas")(rows), atol=1e-4)

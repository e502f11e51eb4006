"""``beamsieve train`` and ``beamsieve concepts``: a model over a catalog, and its thoughts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from beamsieve.cli.histories import (
    CheckpointArgument,
    ColumnOption,
    HistoriesArgument,
    IndexArgument,
    OtherCatalogOption,
    UnknownOption,
    check_device,
    read,
)
from beamsieve.cli.output import JsonOption, print_json, print_pairs
from beamsieve.cli.paths import check_outputs, check_regular

LARGEST_SEED = 2**32 - 1
MOST_THREADS = 1024


def train(
    histories: HistoriesArgument,
    index: IndexArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", dir_okay=False, help="Checkpoint to write.")
    ],
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the histories at most.")] = 200,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no epoch that would end later; no limit by default.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Histories per step.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="After the warm-up.")] = 2e-3,
    patience: Annotated[
        int, typer.Option(min=1, help="Epochs without a better validation loss before the end.")
    ] = 15,
    decay: Annotated[
        float,
        typer.Option(
            help="Share of --epochs at whose end the learning rate falls to 0; keeps the last."
        ),
    ] = 0.0,
    drop_history: Annotated[
        float, typer.Option(help="Chance that an item of a history is left out of one epoch.")
    ] = 0.5,
    label_smoothing: Annotated[
        float, typer.Option(help="Share of every target spread over its whole codebook.")
    ] = 0.0,
    dropout: Annotated[float, typer.Option(help="The model's.")] = 0.2,
    model: Annotated[
        Literal["deco", "fused-gr", "flat-gr", "wide"],
        typer.Option(help="Deco, a backbone that spells for itself, or an encoder-decoder."),
    ] = "deco",
    pointer: Annotated[
        bool, typer.Option("--pointer", help="Learn to copy from the history, too.")
    ] = False,
    teacher: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="A checkpoint whose opinion joins every target."
        ),
    ] = None,
    teacher_share: Annotated[float, typer.Option(help="Its share of every target.")] = 0.5,
    from_teacher: Annotated[
        bool, typer.Option("--from-teacher", help="Begin with its weights, where parts agree.")
    ] = False,
    validity: Annotated[
        float, typer.Option(help="Weight of what probability costs that no item can have.")
    ] = 0.0,
    validity_floor: Annotated[
        float, typer.Option(help="Odds of such probability at which that cost fades out.")
    ] = 0.01,
    model_width: Annotated[int, typer.Option(min=1, help="Of backbone and decoder.")] = 64,
    layers: Annotated[int, typer.Option(min=1, help="Of the backbone, or of both halves.")] = 2,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of everything random.")] = 0,
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_THREADS, help="CPU threads; torch's own choice by default."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:0.")] = "cpu",
    unknown: UnknownOption = "skip",
    column: ColumnOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where an interrupted training stopped.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Train a small generator on histories of an index's items."""
    from beamsieve.errors import InputError
    from beamsieve.models.config import ModelConfig
    from beamsieve.models.resuming import state_path
    from beamsieve.models.training import TrainingSettings
    from beamsieve.models.training import train as train_model
    from beamsieve.models.wide.config import WideConfig

    target = Path(os.path.realpath(output))  # through a link, which stays one
    check_outputs(
        {"--output": output, "the training's state": state_path(target)},
        {"the file of histories": histories, "the index": index, "the teacher": teacher},
    )
    check_regular(output)
    check_device(device)
    if teacher is None and teacher_share != TrainingSettings.teacher_share:
        raise typer.BadParameter("there is no --teacher to share", param_hint="--teacher-share")
    if teacher is None and from_teacher:
        raise typer.BadParameter("there is no --teacher to begin with", param_hint="--from-teacher")
    if not validity and validity_floor != TrainingSettings.validity_floor:
        raise typer.BadParameter("there is no --validity to fade", param_hint="--validity-floor")
    try:
        config: ModelConfig | WideConfig
        if model == "wide":
            if pointer:
                raise typer.BadParameter("A wide model has no pointer; leave out --pointer.")
            config = WideConfig.of_width(model_width, layers, dropout)
        else:
            config = ModelConfig(
                width=model_width,
                decoder_width=model_width,
                layers=layers,
                dropout=dropout,
                architecture=model,
                pointer=pointer,
            )
        settings = TrainingSettings(
            epochs=epochs,
            minutes=minutes,
            batch=batch,
            learning_rate=learning_rate,
            patience=patience,
            decay=decay,
            drop_history=drop_history,
            label_smoothing=label_smoothing,
            teacher_share=teacher_share,
            from_teacher=from_teacher,
            validity=validity,
            validity_floor=validity_floor,
            seed=seed,
            threads=threads,
            device=device,
        )
    except InputError as error:
        raise typer.BadParameter(str(error)) from error
    report = train_model(
        read(histories, column),
        index,
        target,
        config=config,
        settings=settings,
        teacher=teacher,
        unknown=unknown,
        resume=resume,
    ).as_dict()
    if json:
        print_json(report)
    else:
        print_pairs(report)


def concepts(
    checkpoint: CheckpointArgument,
    index: IndexArgument,
    histories: HistoriesArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", dir_okay=False, help="Write them here: .parquet, or safetensors."
        ),
    ],
    half: Annotated[
        bool, typer.Option("--half", help="Keep them in float16: half the bytes.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:0.")] = "cpu",
    batch: Annotated[int, typer.Option(min=1, help="Histories read at once.")] = 256,
    unknown: UnknownOption = "skip",
    column: ColumnOption = None,
    other_catalog: OtherCatalogOption = False,
    json: JsonOption = False,
) -> None:
    """Let a Deco think ahead: keep what it makes of each history, for `recommend --concepts`."""
    from beamsieve.models.ahead import think_ahead
    from beamsieve.models.concepts import save_concepts

    check_outputs(
        {"--output": output},
        {"the checkpoint": checkpoint, "the index": index, "the file of histories": histories},
    )
    check_regular(output)
    check_device(device)
    found = think_ahead(
        checkpoint,
        index,
        read(histories, column),
        device=device,
        batch=batch,
        precision="float16" if half else "float32",
        unknown=unknown,
        other_catalog=other_catalog,
    )
    save_concepts(found, output)
    report = {
        "concepts": str(output),
        "histories": len(found),
        "bytes_per_history": found.bytes_per_user,
    }
    if json:
        print_json(report)
    else:
        print_pairs(report)

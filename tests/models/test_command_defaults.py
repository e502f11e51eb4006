"""``beamsieve train`` without options trains as ``train()`` without arguments does."""

import inspect

from beamsieve.cli.models import train
from beamsieve.models import ModelConfig, TrainingSettings


def test_the_command_has_the_librarys_defaults():
    given = {name: p.default for name, p in inspect.signature(train).parameters.items()}
    settings = vars(TrainingSettings())
    shared = given.keys() & settings.keys()
    assert {"epochs", "batch", "learning_rate", "patience", "drop_history", "seed"} <= shared
    assert {name: given[name] for name in shared} == {name: settings[name] for name in shared}
    config = ModelConfig()
    assert (given["dropout"], given["layers"]) == (config.dropout, config.layers)
    assert given["model_width"] == config.width == config.decoder_width

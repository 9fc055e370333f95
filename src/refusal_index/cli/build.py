"""``refusal-index build``: the commands that plugins register as ``refusal_index.builders``."""

from __future__ import annotations

from refusal_index.cli import GroupedCommand, documented, new_group
from refusal_index.entry_points import installed, load

build = new_group(help="Build a question set using models, or the paper's prompts.", no_args_is_help=True)
build.callback()(lambda: None)
for _name, _plugin in installed("builders").items():
    build.command(_name, cls=GroupedCommand)(documented(load(_plugin)))

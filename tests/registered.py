"""The plugins that pyproject.toml registers, each typed by its interface: mypy checks this file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from refusal_index.cli import Command
from refusal_index.data.datasets import DatasetSource
from refusal_index.findings.metrics import Rendering
from refusal_index.models.requests import ModelProvider, OtherModels
from refusal_index.plugins.almanac import commands as almanac_commands
from refusal_index.plugins.almanac import provider
from refusal_index.plugins.batches import commands as batches_commands
from refusal_index.plugins.batches import engines
from refusal_index.plugins.confidence import commands as confidence_commands
from refusal_index.plugins.confidence.scores import refresh_scores
from refusal_index.plugins.confidence.section import SECTION as CONFIDENCE
from refusal_index.plugins.inspect import client, export_log, foreign_log
from refusal_index.plugins.lm_eval.samples import read_samples
from refusal_index.plugins.paper import commands as paper_commands
from refusal_index.plugins.studies import commands as studies_commands
from refusal_index.plugins.studies.assumptions import copula_comparison
from refusal_index.plugins.studies.calibrator_comparison import calibrator_comparison
from refusal_index.plugins.studies.correlations import auroc_correlation, index_predictors
from refusal_index.plugins.studies.cost import calibrator_cost, cost_table
from refusal_index.plugins.studies.planes import accuracy_refusal_plane, iso_refusal_index, operating_point
from refusal_index.plugins.studies.precision import sample_size
from refusal_index.plugins.studies.prompts import prompt_agreement, score_variability
from refusal_index.plugins.studies.rankings import ranking_stability, ranking_with_ties
from refusal_index.plugins.studies.regression import index_and_accuracy, index_and_size
from refusal_index.plugins.studies.responses import response_to_penalty, thinking
from refusal_index.plugins.studies.results import hallucination_table, results_table
from refusal_index.plugins.studies.scores import score_or_refusal
from refusal_index.plugins.studies.study import StudySpec
from refusal_index.plugins.trackers import commands as trackers_commands
from refusal_index.plugins.trackers import tracker
from refusal_index.plugins.trackers.clients import MlflowTracker, WandbTracker
from refusal_index.plugins.trackers.files import CsvTable, EveryEvalEver, HubFiles
from refusal_index.plugins.trackers.tracker import Exporter, TrackerClass
from refusal_index.plugins.training import commands as training_commands
from refusal_index.plugins.training.section import SECTION as PANEL
from refusal_index.plugins.wiki import commands as wiki_commands
from refusal_index.render import shown
from refusal_index.render.sections import Section
from refusal_index.runs.engine import EngineKind
from refusal_index.runs.reuse import Importer
from refusal_index.runs.writing import RefreshScores

COMMANDS: Mapping[str, Command] = {
    "confidence": confidence_commands.confidence,
    "export": trackers_commands.export,
    "replies": batches_commands.replies,
    "requests": batches_commands.requests,
    "run-batch": almanac_commands.run_batch,
    "serve": almanac_commands.serve,
    "study": studies_commands.study,
    "watch": training_commands.watch,
}
BUILDERS: Mapping[str, Command] = {
    "paper-prompts": paper_commands.paper_prompts,
    "precise-wiki": wiki_commands.precise_wiki,
}
DATASETS: Mapping[str, DatasetSource] = {"almanac": provider.DATASET}
EXECUTORS: Mapping[str, EngineKind] = {
    "batch": engines.BATCH,
    "command": engines.COMMAND,
    "files": engines.FILES,
    "ray": engines.RAY,
}
EXPORTERS: Mapping[str, Exporter] = {
    "csv": CsvTable,
    "every-eval-ever": EveryEvalEver,
    "hf-eval-results": HubFiles,
    "inspect": export_log,
}
IMPORTERS: Mapping[str, Importer] = {"inspect": foreign_log.read_log, "lm-eval": read_samples}
MODELS: Mapping[str, ModelProvider] = {"almanac": provider.PROVIDER}
STUDIES: Sequence[StudySpec] = (
    accuracy_refusal_plane,
    auroc_correlation,
    calibrator_comparison,
    calibrator_cost,
    copula_comparison,
    cost_table,
    hallucination_table,
    index_and_accuracy,
    index_and_size,
    index_predictors,
    iso_refusal_index,
    operating_point,
    prompt_agreement,
    ranking_stability,
    ranking_with_ties,
    response_to_penalty,
    results_table,
    sample_size,
    score_or_refusal,
    score_variability,
    thinking,
)
SECTIONS: Mapping[str, Section] = {"confidence": CONFIDENCE, "panel": PANEL}
TRACKERS: Mapping[str, TrackerClass] = {"mlflow": MlflowTracker, "wandb": WandbTracker}
OTHER_MODELS: OtherModels = client
REFRESH_CONFIDENCE: RefreshScores = refresh_scores
SHOWN: Rendering = shown

REGISTERED: Mapping[str, Mapping[str, object]] = {
    "builders": BUILDERS,
    "commands": COMMANDS,
    "datasets": DATASETS,
    "executors": EXECUTORS,
    "exporters": EXPORTERS,
    "importers": IMPORTERS,
    "models": MODELS,
    "report_sections": SECTIONS,
    "trackers": TRACKERS,
    "studies": {study.name: study for study in STUDIES},
    "hooks": {
        "other_models": OTHER_MODELS,
        "refresh_confidence": REFRESH_CONFIDENCE,
        "shown": SHOWN,
        "trackers": tracker,
    },
}

"""Pages of the Python API: one for each topic, with names that mkdocstrings replaces by signatures and docstrings."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """A page of the API: names of one package, in the order of the page."""

    title: str
    package: str
    names: str

    @property
    def page(self) -> str:
        return f"reference/api/{self.package.rpartition('.')[2]}.md"


TOPICS = (
    Topic(
        "Methods",
        "bayesnorm.methods",
        "MCBN GaussianBN StochasticBN MCDropout DeepEnsemble ensemble BayesByBackprop MNF GroupNormalJeffreys "
        "GroupHorseshoe",
    ),
    Topic(
        "Posteriors",
        "bayesnorm.posterior",
        "load combine deterministic Posterior BatchNormPosterior AdaptedPosterior DropoutPosterior EnsemblePosterior "
        "CombinedPosterior VariationalPosterior DeterministicPosterior",
    ),
    Topic("Engines", "bayesnorm.engines", "MonteCarlo SigmaPoints Delta Engine"),
    Topic(
        "Likelihoods",
        "bayesnorm.likelihoods",
        "Categorical VarianceScaledCategorical LogitNoise Gaussian Laplace StudentT HeteroscedasticGaussian "
        "HeteroscedasticLaplace HeteroscedasticStudentT LearnedNoise MultiTask Likelihood",
    ),
    Topic(
        "Predictives",
        "bayesnorm.predictive",
        "RegressionPredictive ClassificationPredictive MultiTaskPredictive RegressionSummary ClassificationSummary "
        "Predictive",
    ),
    Topic(
        "Calibration",
        "bayesnorm.calibration",
        "calibrate ood_scores OODScores select_batch_size BatchSizeChoice suggest_layers LayerSuggestion",
    ),
    Topic(
        "Metrics",
        "bayesnorm.metrics",
        "rmse mae crps pll gaussian_pll coverage width sharpness pit quantile_coverage quantile_calibration_error "
        "normalised_crps normalised_pll constant_uncertainty constant_variance optimal_crps optimal_pll "
        "accuracy nll brier ece reliability_curve confidence_curve mean_iou auroc aupr aurc fpr95 retention_curve "
        "prediction_rejection_ratio spearman entropy_cdf torchmetric",
    ),
    Topic(
        "Distribution shift",
        "bayesnorm.shift",
        "drift Drift LayerDrift adapt adapted_network DriftMonitor AdaptiveStream",
    ),
    Topic(
        "Compression",
        "bayesnorm.compression",
        "compress prune_channels Compressed CompressionReport load_compressed",
    ),
    Topic("Training", "bayesnorm.training", "train distill Rescaled relative_adam CropAndFlip"),
    Topic("Changing networks", "bayesnorm.network", "add_dropout with_noise_head joined_outputs"),
    Topic("Examining networks", "bayesnorm.network_report", "doctor NetworkReport Finding"),
    Topic("Theory", "bayesnorm.theory", "diagnose Diagnosis unit_gaussians weight_decay_prior kl_divergence"),
    Topic("Export", "bayesnorm.export", "export as_module ExportedFile SampledModule"),
    Topic(
        "Tables",
        "bayesnorm.tabular",
        "BayesNormRegressor BayesNormClassifier load TableDrift UncertaintyExplanation Selection export_table",
    ),
    Topic(
        "Active learning",
        "bayesnorm.active",
        "ActiveLearner Random entropy bald BatchBALD epistemic_variance predictive_variance VarianceReduction",
    ),
    Topic("Maps of images", "bayesnorm.maps", "map_images ImageFiles image_files MapSettings read_settings"),
    Topic(
        "Plots",
        "bayesnorm.plots",
        "CalibrationPlot CoveragePlot UncertaintyErrorPlot ReliabilityDiagram EntropyPlot RetentionPlot DriftLayers "
        "theme save_figure figure_svg",
    ),
    Topic("Errors", "bayesnorm.errors", ""),
)


def public_names(topic: Topic) -> list[str]:
    """Return the names of a page; the page of errors has all of its module's classes."""
    if topic.names:
        return topic.names.split()
    module = importlib.import_module(topic.package)
    return [name for name, value in vars(module).items() if inspect.isclass(value) and issubclass(value, Exception)]


def first_sentence(topic: Topic, name: str) -> str:
    """Return the first sentence of a docstring in one line."""
    text = inspect.getdoc(getattr(importlib.import_module(topic.package), name)) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def api_pages() -> dict[str, str]:
    """Return the text of every page, by its path in the site."""
    pages = {}
    index = [
        "# Python API\n",
        "`import bayesnorm as bn` gives the names of the first sections directly: `bn.MCBN`, `bn.calibrate`. "
        "For the others, the page names the package to import from.\n",
    ]
    for topic in TOPICS:
        names = public_names(topic)
        file = topic.page.rpartition("/")[2]
        index += [f"\n## [{topic.title}]({file})\n", "| name | what it is |", "|---|---|"]
        index += [f"| [`{name}`]({file}#{topic.package}.{name}) | {first_sentence(topic, name)} |" for name in names]
        blocks = [f"::: {topic.package}.{name}\n" for name in names]
        pages[topic.page] = "\n".join([f"# {topic.title}\n", f"*From `{topic.package}`.*\n", *blocks])
    pages["reference/api/index.md"] = "\n".join(index) + "\n"
    return pages

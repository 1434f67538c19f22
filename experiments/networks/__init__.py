"""Networks of the reproduced papers."""

from .cifar_resnet import (
    CIFAR_RESNET_DEPTHS as CIFAR_RESNET_DEPTHS,
    CifarResNet as CifarResNet,
    load_cifar_resnet as load_cifar_resnet,
)
from .lenet import LeNet5 as LeNet5
from .mlp import paper_dropout_mlp as paper_dropout_mlp, paper_mlp as paper_mlp, plain_mlp as plain_mlp
from .resnet import ResNet as ResNet
from .segnet import SegNet as SegNet
from .unet import UNet as UNet
from .vgg import VGG as VGG

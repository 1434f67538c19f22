"""Maps of labels and predictive entropy for a folder of images, with a segmentation network.

settings = read_settings("maps.json")
posterior = bn.MCBN(8, states=32).fit(network, ImageFiles(image_files("train"), settings), bn.Categorical())
image_maps = map_images(posterior, image_files("images"), settings, "out")
"""

from .images import (
    ImageFiles as ImageFiles,
    ImageMaps as ImageMaps,
    digest_of_files as digest_of_files,
    digest_of_weights as digest_of_weights,
    image_files as image_files,
)
from .mapping import map_images as map_images, mapped_image as mapped_image
from .networks import (
    Entry as Entry,
    MapSettings as MapSettings,
    load_network as load_network,
    read_settings as read_settings,
)

"""Data sets, benchmark tables and their files: facts, formats, checks and downloads."""

from ntkscore.data.datasets import DATASETS as DATASETS
from ntkscore.data.datasets import Dataset as Dataset
from ntkscore.data.downloads import fetch as fetch
from ntkscore.data.images import ImageSet as ImageSet
from ntkscore.data.images import draw_images as draw_images
from ntkscore.data.images import load as load
from ntkscore.data.tables import Table as Table
from ntkscore.data.tables import load_table as load_table

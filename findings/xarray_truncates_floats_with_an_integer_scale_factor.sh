#!/usr/bin/env bash
# xarray 2026.9.0: a float32 variable of a NetCDF file whose scale_factor is an integer attribute, and that has no add_offset, is decoded
# to int32: the stored values are truncated before the multiplication, and NaN becomes an integer. netCDF4 1.7.5 decodes the same
# variable to float64 without loss. With an add_offset as well, xarray decodes to float64, too.
#
# Setting: stored 1.5, -2.25, NaN with scale_factor = 2 (int32).
# Seen: netCDF4 float64 3, -4.5, NaN; xarray int32 2, -4 and an integer; with add_offset = 3 (int32) xarray float64 6, -1.5, NaN.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q numpy==2.4.6 netCDF4==1.7.5.1.post1 xarray==2026.9.0
cat >main.py <<'PYTHON'
import warnings

import netCDF4
import numpy as np
import xarray as xr

warnings.simplefilter("ignore")
with netCDF4.Dataset("a.nc", "w") as file:
    file.createDimension("n", 3)
    for name, attributes in {"scaled": {"scale_factor": np.int32(2)},
                             "shifted": {"scale_factor": np.int32(2), "add_offset": np.int32(3)}}.items():
        variable = file.createVariable(name, "f4", ("n",))
        variable.set_auto_maskandscale(False)
        variable.setncatts(attributes)
        variable[:] = [1.5, -2.25, np.nan]
with netCDF4.Dataset("a.nc") as file:
    values = file["scaled"][:]
    print("netCDF4", values.dtype, values.tolist())
with xr.open_dataset("a.nc") as file:
    values = file["scaled"].values
    print("xarray", values.dtype, values[:2].tolist(), "NaN is kept:", bool(np.isnan(values[2])))
    print("with add_offset", file["shifted"].dtype, file["shifted"].values.tolist())
PYTHON
venv/bin/python main.py | tee seen.txt
diff - seen.txt <<'SEEN'
netCDF4 float64 [3.0, -4.5, nan]
xarray int32 [2, -4] NaN is kept: False
with add_offset float64 [6.0, -1.5, nan]
SEEN
echo "as described"

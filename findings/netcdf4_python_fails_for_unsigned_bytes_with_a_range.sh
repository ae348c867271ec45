#!/usr/bin/env bash
# netCDF4 1.7.5 (Python) with NumPy 2.4.6: reading a variable of signed bytes with _Unsigned = "true" and a valid_range raises TypeError,
# because the masked array gets the default fill value of the signed type, which the unsigned type cannot hold. The same variable is
# read if it has a _FillValue. xarray 2026.9.0, which ignores valid_range, reads both.
#
# Setting: stored -1, 1, 100 of int8, that is 255, 1, 100 without sign, with valid_range = [1, 100].
# Seen: TypeError "Cannot convert fill_value -127 to dtype uint8"; with _FillValue = 0: 255 is masked.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q numpy==2.4.6 netCDF4==1.7.5.1.post1 xarray==2026.9.0
cat >main.py <<'PYTHON'
import netCDF4
import numpy as np
import xarray as xr

with netCDF4.Dataset("a.nc", "w") as file:
    file.createDimension("n", 3)
    for name, fill in {"plain": None, "filled": np.int8(0)}.items():
        variable = file.createVariable(name, "i1", ("n",), fill_value=fill)
        variable.set_auto_maskandscale(False)
        variable.setncatts({"_Unsigned": "true", "valid_range": np.array([1, 100], "i1")})
        variable[:] = np.array([-1, 1, 100], "i1")
with netCDF4.Dataset("a.nc") as file:
    try:
        print("plain", file["plain"][:].tolist())
    except TypeError as error:
        print("plain", type(error).__name__, error)
    print("filled", file["filled"][:].dtype, file["filled"][:].tolist())
with xr.open_dataset("a.nc") as file:
    print("xarray", file["plain"].values.tolist())
PYTHON
venv/bin/python main.py | tee seen.txt
diff - seen.txt <<'SEEN'
plain TypeError Cannot convert fill_value -127 to dtype uint8
filled uint8 [None, 1, 100]
xarray [255, 1, 100]
SEEN
echo "as described"

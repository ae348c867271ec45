"""Trainer: trains and runs a model in this process, on arrays of NumPy, torch and all others that have __dlpack__.

It calls the C interface, include/kindling_c.h, which documents each function; there is no compiled module of Python's.
"""

import ctypes
import pathlib

import kindling

# The shared library; None: that of this package.
LIBRARY = None

_CPU, _CUDA = 0, 1
_PLACES = ("location", "found", "expected", "hint")
_VERSIONED, _UNVERSIONED = b"dltensor_versioned", b"dltensor"
_USED = {_VERSIONED: b"used_dltensor_versioned", _UNVERSIONED: b"used_dltensor"}  # a capsule keeps the address of its name


class Error(RuntimeError):
    """An error of the library, with its status and its parts: location, found, expected, hint."""

    def __init__(self, library, status):
        super().__init__(library.kindling_error().decode())
        self.status = status
        for number, name in enumerate(_PLACES):
            setattr(self, name, library.kindling_error_part(number).decode())


class _Array(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("rank", ctypes.c_int32), ("dtype", ctypes.c_int32), ("device", ctypes.c_int32), ("device_index", ctypes.c_int32)]


class _Progress(ctypes.Structure):
    _fields_ = [("epoch", ctypes.c_int64), ("batch", ctypes.c_int64), ("global_step", ctypes.c_int64)]


_loaded = None


def _library():
    global _loaded
    if _loaded is None:
        if LIBRARY is None:
            kindling.require_torch()
        path = LIBRARY or pathlib.Path(kindling.__file__).parent / "lib/libkindling_c.so"
        library = ctypes.CDLL(str(path))
        for name in ("kindling_error", "kindling_error_part", "kindling_version"):
            getattr(library, name).restype = ctypes.c_char_p
        _loaded = library
    return _loaded


def _call(name, *arguments):
    library = _library()
    status = getattr(library, name)(*arguments)
    if status != 0:
        raise Error(library, status)


def _text(words):
    return str(words).encode()


def _capsule_of(array):
    try:
        return array.__dlpack__(max_version=(1, 0))
    except TypeError:  # of libraries that know unversioned capsules only
        return array.__dlpack__()


class Tensor:
    """A tensor of the library. np.from_dlpack() and torch.from_dlpack() make an array that shares its memory."""

    def __init__(self, handle):
        self._handle = handle

    @classmethod
    def sharing(cls, array):
        """Makes a tensor on the memory of an array; one that is read-only is copied."""
        if isinstance(array, cls):
            return array
        if not hasattr(array, "__dlpack__"):
            raise TypeError(f"{type(array).__name__} has no __dlpack__; use an array of NumPy or torch")
        capsule = _capsule_of(array)
        python = ctypes.pythonapi
        python.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
        python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        python.PyCapsule_GetPointer.restype = ctypes.c_void_p
        python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
        name = _VERSIONED if python.PyCapsule_IsValid(capsule, _VERSIONED) else _UNVERSIONED
        handle = ctypes.c_void_p()
        _call("kindling_tensor_from_dlpack", ctypes.c_void_p(python.PyCapsule_GetPointer(capsule, name)),
              ctypes.c_int32(name == _VERSIONED), ctypes.byref(handle))
        python.PyCapsule_SetName(capsule, _USED[name])  # the library deletes it
        return cls(handle)

    def _array(self):
        array = _Array()
        _call("kindling_tensor_array", self._handle, ctypes.byref(array))
        return array

    @property
    def shape(self):
        array = self._array()
        return tuple(array.shape[i] for i in range(array.rank))

    def __dlpack__(self, *, stream=None, max_version=None, **_):
        is_versioned = max_version is not None and max_version[0] >= 1
        managed = ctypes.c_void_p()
        _call("kindling_tensor_to_dlpack", self._handle, ctypes.c_int32(is_versioned), ctypes.byref(managed))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(managed, _VERSIONED if is_versioned else _UNVERSIONED, None)

    def __dlpack_device__(self):
        array = self._array()
        return (1 if array.device == _CPU else 2, array.device_index)

    def __del__(self):
        if getattr(self, "_handle", None) and _loaded is not None:
            _loaded.kindling_tensor_free(self._handle)
            self._handle = None


def _tensors(arrays):
    if arrays is None:
        return []
    return [Tensor.sharing(array) for array in (arrays if isinstance(arrays, (list, tuple)) else [arrays])]


def _arrays(tensors):
    return (_Array * max(len(tensors), 1))(*(tensor._array() for tensor in tensors)), ctypes.c_size_t(len(tensors))


class Trainer:
    """A trainer with its model, from the keys of a config.

    Trainer('model.name = "mlp_regressor"', "optimizer.lr = 0.01") takes settings alone; `file` is a config file and `text` the text of
    one, before them. inputs and targets are an array, or a list of several, whose first dimension counts the samples.
    """

    def __init__(self, *settings, file=None, text=None):
        if file is not None and text is not None:
            raise TypeError("file and text: expected one of them")
        lines = (ctypes.c_char_p * max(len(settings), 1))(*(_text(line) for line in settings))
        more = (lines, ctypes.c_size_t(len(settings)), None)
        self._handle = ctypes.c_void_p()
        if file is not None:
            _call("kindling_trainer_from_file", _text(file), *more, ctypes.byref(self._handle))
        elif text is not None:
            _call("kindling_trainer_from_text", _text(text), *more, ctypes.byref(self._handle))
        else:
            _call("kindling_trainer_create", *more, ctypes.byref(self._handle))

    def train_step(self, inputs, targets, mask=None):
        """Trains one step; `mask` names the samples that count. Does not wait for a GPU."""
        inputs, targets, mask = _tensors(inputs), _tensors(targets), _tensors(mask)
        if mask:
            _call("kindling_train_step_masked", self._handle, *_arrays(inputs), *_arrays(targets), *_arrays(mask)[:1])
        else:
            _call("kindling_train_step", self._handle, *_arrays(inputs), *_arrays(targets))

    def loss(self):
        """Waits for the loss of the latest step."""
        return self._number("kindling_loss_value", ctypes.c_double)

    def log(self, name, value):
        """Logs a value with the next step."""
        _call("kindling_log_value", self._handle, _text(name), ctypes.c_double(value))

    def finish_epoch(self):
        """Ends an epoch of train_step() and returns its metrics."""
        _call("kindling_finish_epoch", self._handle)
        return self.metrics()

    def fit(self, save_into=None):
        """Trains on the [data] of the config; continues from the folder `save_into`. Returns the metrics of the latest epoch."""
        if save_into is not None:
            _call("kindling_save_into", self._handle, _text(save_into))
        _call("kindling_fit", self._handle, None)
        return self.metrics()

    def validate(self):
        """Measures the model on the validation samples of [data]."""
        _call("kindling_validate", self._handle)
        return self.metrics()

    def infer(self, inputs):
        """Returns the first output of the model as a Tensor on the host."""
        inputs, output = _tensors(inputs), ctypes.c_void_p()
        _call("kindling_infer_tensor", self._handle, *_arrays(inputs), ctypes.byref(output))
        return Tensor(output)

    def predict(self):
        """Returns the outputs for the prediction samples of [data] as a Tensor on the host."""
        output = ctypes.c_void_p()
        _call("kindling_predict", self._handle, ctypes.byref(output))
        return Tensor(output)

    def metrics(self):
        """The metrics of the latest epoch, fit or evaluation, by name."""
        found, name, value = {}, ctypes.c_char_p(), ctypes.c_double()
        for index in range(self._number("kindling_metric_count", ctypes.c_size_t)):
            _call("kindling_metric_name", self._handle, ctypes.c_size_t(index), ctypes.byref(name))
            _call("kindling_metric", self._handle, name, ctypes.byref(value))
            found[name.value.decode()] = value.value
        return found

    def is_done(self):
        return self._number("kindling_is_done", ctypes.c_int32) == 1

    def lr(self):
        """The learning rate of the latest step."""
        return self._number("kindling_learning_rate", ctypes.c_double)

    def progress(self):
        """Epochs finished, batches of this epoch, and optimizer steps."""
        progress = _Progress()
        _call("kindling_get_progress", self._handle, ctypes.byref(progress))
        return progress.epoch, progress.batch, progress.global_step

    def request_stop(self):
        """Requests that a fit ends after its current step; from any thread."""
        _call("kindling_request_stop", self._handle)

    def save(self, path):
        """Saves the whole state of the run, durably."""
        _call("kindling_save", self._handle, _text(path))

    def resume(self, path):
        """Restores it: the next step is bit-identical to the one that would have followed."""
        _call("kindling_resume", self._handle, _text(path))

    def save_weights(self, path):
        """Saves the weights as .safetensors, .pt, or .pt2 of an exported model."""
        _call("kindling_save_weights", self._handle, _text(path))

    def load_weights(self, path):
        _call("kindling_load_weights", self._handle, _text(path))

    def _number(self, function, kind):
        value = kind()
        _call(function, self._handle, ctypes.byref(value))
        return value.value

    def __del__(self):
        if getattr(self, "_handle", None) and _loaded is not None:
            _loaded.kindling_trainer_free(self._handle)
            self._handle = None

"""kindling.Trainer on arrays of NumPy and torch in this process: the losses of PyTorch, shared memory, errors.

    python_trainer_test.py PYTHON LIBRARY      PYTHON: with torch and NumPy; exits with 77 if it has none
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

if not os.environ.get("KINDLING_IN_VENV"):
    if subprocess.run([sys.argv[1], "-c", "import torch, numpy"], capture_output=True).returncode != 0:
        print(f"{sys.argv[1]} has no torch: skipped")
        sys.exit(77)
    sys.exit(subprocess.run([sys.argv[1], "-B", *sys.argv], env=os.environ | {"KINDLING_IN_VENV": "1"}).returncode)

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
sys.modules["kindling._built_with"] = types.SimpleNamespace(LIBTORCH_MINOR="")
import kindling
import kindling._trainer

kindling._trainer.LIBRARY = sys.argv[2]
SETTINGS = ('model.name = "mlp_regressor"', "model.hidden = [16]", 'optimizer.name = "sgd"', "optimizer.lr = 0.1", "trainer.num_threads = 1")


def samples(seed=0):
    x = np.random.default_rng(seed).standard_normal((32, 3)).astype(np.float32)
    return x, (x[:, :1] * x[:, 1:2]).astype(np.float32)


class PythonTrainer(unittest.TestCase):
    def test_losses_are_those_of_torch(self):
        trainer = kindling.Trainer(*SETTINGS)
        x, y = samples()
        trainer.infer(x)  # creates the lazy layers
        with tempfile.TemporaryDirectory() as folder:
            trainer.save_weights(f"{folder}/start.pt")
            start = torch.load(f"{folder}/start.pt")
        net = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        values = [value for name, value in start.items() if name.startswith("net.")]
        self.assertEqual([tuple(value.shape) for value in values], [(16, 3), (16,), (1, 16), (1,)])
        with torch.no_grad():
            for parameter, value in zip(net.parameters(), values):
                parameter.copy_(value)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for seed in range(20):
            x, y = samples(seed)
            trainer.train_step(x, torch.from_numpy(y))
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(net(torch.from_numpy(x)), torch.from_numpy(y))
            loss.backward()
            optimizer.step()
            self.assertAlmostEqual(trainer.loss(), loss.item(), delta=1e-6 * max(1, loss.item()))
        metrics = trainer.finish_epoch()
        self.assertIn("train_loss", metrics)
        self.assertEqual(trainer.progress(), (1, 0, 20))
        self.assertEqual(trainer.lr(), 0.1)

    def test_arrays_of_both_libraries_give_the_same_step(self):
        x, y = samples()
        losses = []
        for kind in (lambda a: a, torch.from_numpy, np.asfortranarray, lambda a: np.ascontiguousarray(a[::-1])[::-1], kindling.Tensor.sharing):
            trainer = kindling.Trainer(*SETTINGS)
            try:
                trainer.train_step(kind(x), kind(y))
            except kindling.Error as error:  # DLPack has no negative strides
                self.assertIn("negative stride", str(error))
                continue
            losses.append(trainer.loss())
        self.assertEqual(len(losses), 4)
        self.assertEqual(len(set(losses)), 1)

    def test_outputs_share_their_memory(self):
        x, _ = samples()
        output = kindling.Trainer(*SETTINGS).infer(x)
        self.assertEqual(output.shape, (32, 1))
        a, b = np.from_dlpack(output), torch.from_dlpack(output)
        b[3] = 7
        self.assertEqual(a[3, 0], 7)
        del output
        self.assertEqual(a[3, 0], 7)

    def test_read_only_arrays_are_copied(self):
        x, y = samples()
        x.flags.writeable = False
        trainer = kindling.Trainer(*SETTINGS)
        trainer.train_step(x, y)
        self.assertTrue(np.isfinite(trainer.loss()))

    def test_resumes(self):
        first, second = kindling.Trainer(*SETTINGS), kindling.Trainer(*SETTINGS)
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(5):
                first.train_step(*samples(seed))
            first.save(f"{folder}/run.safetensors")
            second.resume(f"{folder}/run.safetensors")
        for trainer in (first, second):
            trainer.train_step(*samples(6))
        self.assertEqual(first.loss(), second.loss())

    def test_errors_have_parts(self):
        with self.assertRaises(kindling.Error) as context:
            kindling.Trainer('model.name = "mpl"')
        self.assertEqual(context.exception.status, 2)
        self.assertIn("mlp", str(context.exception))
        trainer = kindling.Trainer(*SETTINGS)
        x, y = samples()
        with self.assertRaises(kindling.Error) as context:
            trainer.train_step(x[:5], y)
        self.assertIn("[5, 3]", context.exception.found)
        with self.assertRaisesRegex(TypeError, "list"):
            trainer.train_step([[1.0, 2.0, 3.0]], y)
        with self.assertRaises(kindling.Error):
            trainer.train_step(x.astype(np.complex64), y)
        with self.assertRaises(BufferError):
            trainer.train_step(torch.from_numpy(x).requires_grad_(), y)

    def test_counts_the_inputs_of_a_program(self):
        class Two(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(3, 1)

            def forward(self, a, b):
                return self.layer(a) * b

        x, y = samples()
        with tempfile.TemporaryDirectory() as folder:
            torch.export.save(torch.export.export(Two(), (torch.zeros(32, 3), torch.zeros(32, 1))), f"{folder}/two.pt2")
            trainer = kindling.Trainer('model.name = "exported"', f'model.file = "{folder}/two.pt2"', 'model.loss = "mse"')
        with self.assertRaises(kindling.Error) as context:
            trainer.train_step(x, y)  # y would be the second input and the target
        self.assertIn("expected: 2 inputs and 1 target", str(context.exception))
        trainer.train_step([x, y], y)
        self.assertTrue(np.isfinite(trainer.loss()))

    def test_outputs_are_never_the_memory_of_inputs(self):
        class Same(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(3, 1)

            def forward(self, x):
                return x[:, 1:], self.layer(x)

        x, _ = samples()
        with tempfile.TemporaryDirectory() as folder:
            torch.export.save(torch.export.export(Same(), (torch.zeros(32, 3),)), f"{folder}/same.pt2")
            trainer = kindling.Trainer('model.name = "exported"', f'model.file = "{folder}/same.pt2"', 'model.loss = "mse"')
        output = np.from_dlpack(trainer.infer(x))
        np.testing.assert_array_equal(output, x[:, 1:])
        x[0, 1] = 100
        self.assertNotEqual(output[0, 0], 100)

    def test_fits_on_the_data_of_a_config(self):
        trainer = kindling.Trainer("trainer.max_epochs = 2", "trainer.limit_train_batches = 8",
                                   text='[data]\nname = "digits"\n[model]\nname = "mlp"\nhidden = [16]\n')
        self.assertIn("val_acc", trainer.fit())
        self.assertEqual(trainer.validate()["val_acc"], trainer.metrics()["val_acc"])
        self.assertEqual(trainer.predict().shape[1], 10)
        self.assertTrue(trainer.is_done())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

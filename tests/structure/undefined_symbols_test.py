"""What the library and the program take from LibTorch: none of its readers and writers of files, which run what a file says, crash on
hostile bytes, or abort on a full disk."""

import os
import re
import subprocess
import unittest

# torch::load and torch::save are templates: what they call are the archives of torch::serialize.
BANNED = re.compile(r" U (torch::(save|load|pickle_save|pickle_load|serialize::(Input|Output)Archive::)|"
                    r"torch::jit::(_?load|_?save|pickle|unpickle|import_ir_module|Pickler|Unpickler)|caffe2::serialize::)")
# TorchOptimizer hands LibTorch's optimizers their state through an archive in memory, which it has written itself from tensors and numbers:
# their interface has no other way. Archives in files and streams stay banned.
IN_MEMORY = re.compile(r" U torch::serialize::(InputArchive::(InputArchive\(\)|keys|read\(|try_read\(|load_from\(char const\*, unsigned long)|"
                       r"OutputArchive::(OutputArchive\(|write\(|save_to\(std::function))")


def is_banned(symbol):
    return BANNED.search(symbol) is not None and IN_MEMORY.search(symbol) is None


def undefined_symbols(file):
    return subprocess.run(["nm", "--dynamic", "--undefined-only", "--demangle", file], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.splitlines()


class LibraryAndProgram(unittest.TestCase):
    def test_never_call_the_file_readers_of_libtorch(self):
        for variable in ("KINDLING_LIBRARY", "KINDLING_PROGRAM"):
            with self.subTest(variable):
                symbols = undefined_symbols(os.environ[variable])
                self.assertGreater(len(symbols), 50, "the symbols were not found")
                self.assertEqual([symbol for symbol in symbols if is_banned(symbol)], [])

    def test_would_notice_them(self):
        for name in ("torch::pickle_load(std::vector<char, std::allocator<char> > const&)",
                     "torch::pickle_save(c10::IValue const&)",
                     "torch::serialize::InputArchive::load_from(std::string const&, std::optional<c10::Device>)",
                     "torch::serialize::InputArchive::load_from(std::istream&, std::optional<c10::Device>)",
                     "torch::serialize::OutputArchive::save_to(std::ostream&)",
                     "torch::jit::load(std::string const&, std::optional<c10::Device>, bool)",
                     "torch::jit::_load_for_mobile(std::string const&)",
                     "torch::jit::unpickle(char const*, unsigned long)",
                     "caffe2::serialize::PyTorchStreamReader::~PyTorchStreamReader()"):
            self.assertTrue(is_banned("                 U " + name), name)
        for name in ("torch::nn::Module::save(torch::serialize::OutputArchive&) const",  # of every module's table
                     "at::_ops::mm::call(at::Tensor const&, at::Tensor const&)"):
            self.assertFalse(is_banned("                 U " + name), name)


if __name__ == "__main__":
    unittest.main()

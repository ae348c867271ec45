#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/commands/program_run.h"
#include "kindling/base/file.h"
#include "kindling/formats/npy.h"
#include "kindling/formats/safetensors.h"
#include "kindling/interop/export_program.h"
#include "kindling/tensors/state_dict.h"
#include "support/python.h"
#include "support/scratch.h"

namespace kindling {
namespace {

const std::filesystem::path kPythonFiles = KINDLING_FIXTURES;

void expect_equal_states(const StateDict& found, const StateDict& wanted) {
  ASSERT_EQ(found.tensors.size(), wanted.tensors.size());
  for (const auto& [name, tensor] : wanted.tensors) {
    ASSERT_NE(found.find(name), nullptr) << name;
    EXPECT_TRUE(found.find(name)->equal(tensor)) << name;
  }
}

TEST(Conversion, ImportsPythonsStateDicts) {
  const Scratch scratch;
  const std::string out = scratch / "w.safetensors";
  const ProgramRun run = run_program({"import", kPythonFiles / "torch_2.4.1/resnet.pt", out});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  expect_equal_states(load_safetensors(out), load_safetensors(kPythonFiles / "expected/resnet.safetensors"));
  EXPECT_EQ(load_safetensors(out).metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_NE(run.out.find("conv.weight"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("3 x 2 x 3 x 3"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("13 tensors written to " + out), std::string::npos) << run.out;
}

TEST(Conversion, RenamesAndTakesAKey) {
  const Scratch scratch;
  const std::string in = kPythonFiles / "torch_1.13.1/nested.pt", out = scratch / "w.pt";
  const ProgramRun run = run_program({"import", in, out, "--key", "model", "--map", "weight=net.0.weight"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const StateDict wanted = load_safetensors(kPythonFiles / "expected/nested.safetensors");
  expect_equal_states(load_state_file(out),
                      renamed(wanted, {.prefix = "", .map = {{"weight", "net.0.weight"}}}));
  EXPECT_NE(run.out.find("was weight"), std::string::npos) << run.out;
}

TEST(Conversion, ImportsModulesProgramsAndOldFiles) {
  const Scratch scratch;
  for (const char* name : {"module.pt", "script.pt", "before_1_6.pt"}) {
    const std::string out = scratch / "w.safetensors";
    const ProgramRun run = run_program({"import", kPythonFiles / "torch_2.13.0" / name, out});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    expect_equal_states(load_safetensors(out),
                        load_safetensors(kPythonFiles / "expected/nested.safetensors"));
  }
}

TEST(Conversion, ExportsTheModelOfARunOrACheckpoint) {
  const Scratch scratch;
  const std::string run_folder = scratch / "runs";
  const ProgramRun fit = run_program({"fit", "-c", kConfigs / "digits.toml", "--trainer.max_epochs=1",
                                      "--run.dir=" + run_folder, "--quiet", "name=a"});
  ASSERT_EQ(fit.exit_code, 0) << fit.err;
  std::filesystem::path run;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run_folder))
    if (entry.path().filename() == "weights.safetensors") run = entry.path().parent_path();
  const StateDict weights = load_safetensors(run / "weights.safetensors");
  for (const std::string ending : {"pt", "safetensors"}) {
    const ProgramRun out = run_program({"export", run, scratch / ("w." + ending)});
    ASSERT_EQ(out.exit_code, 0) << out.err;
    expect_equal_states(load_state_file(scratch / ("w." + ending)), weights);
  }
  // Only the model of a checkpoint: optimizer and random state are not weights.
  StateDict checkpoint{.tensors = {{"optimizer.x", weights.tensors[0].second}},
                       .metadata = {{"progress.global_step", "1"}}};
  for (const auto& [name, tensor] : weights.tensors) checkpoint.tensors.emplace_back("model." + name, tensor);
  save_safetensors(checkpoint, scratch / "c.safetensors");
  ASSERT_EQ(run_program({"export", scratch / "c.safetensors", scratch / "c.pt"}).exit_code, 0);
  expect_equal_states(load_state_file(scratch / "c.pt"), weights);
}

// Equal to the model in Python: see the tests of export_program.
TEST(Conversion, ExportsTheModelItself) {
  if (!KINDLING_HAS_INTEROP) GTEST_SKIP() << "built with KINDLING_INTEROP=OFF";
  const Scratch scratch;
  const std::string run_folder = scratch / "runs", out = scratch / "model.pt2";
  ASSERT_EQ(run_program({"fit", "-c", kConfigs / "digits.toml", "--trainer.max_epochs=1",
                         "--run.dir=" + run_folder, "--quiet", "name=a"})
                .exit_code,
            0);
  std::filesystem::path run;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run_folder))
    if (entry.path().filename() == "weights.safetensors") run = entry.path().parent_path();
  const ProgramRun exported = run_program({"export", run, out});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_NE(exported.out.find("written to " + out + ", for torch.export.load"), std::string::npos)
      << exported.out;
  const std::string bytes = read_file(out, 100'000'000);
  for (const auto& [name, tensor] : load_safetensors(run / "weights.safetensors").tensors) {
    const std::string_view values(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
    EXPECT_NE(bytes.find(values), std::string::npos) << name;
    EXPECT_NE(bytes.find("\"" + name + "\""), std::string::npos) << name;
  }
  EXPECT_NE(bytes.find("torch.ops.aten.linear.default"), std::string::npos);
  // The ONNX files of the run and of its program are identical; they start with the format version, 9.
  ASSERT_EQ(run_program({"export", run, scratch / "a.onnx"}).exit_code, 0);
  ASSERT_EQ(run_program({"export", out, scratch / "b.onnx"}).exit_code, 0);
  const std::string onnx = read_file(scratch / "a.onnx", 100'000'000);
  EXPECT_TRUE(onnx.starts_with("\x08\x09"));
  EXPECT_EQ(onnx, read_file(scratch / "b.onnx", 100'000'000));
  EXPECT_EQ(run_program({"export", run, scratch / "c.onnx", "--train"}).exit_code, 2);
  EXPECT_EQ(run_program({"export", out, scratch / "c.onnx", "--train"}).exit_code, 2);
  ASSERT_EQ(run_program({"export", run, out, "--train"}).exit_code, 0);
  EXPECT_EQ(run_program({"export", run, scratch / "w.pt", "--train"}).exit_code, 2);
  EXPECT_EQ(run_program({"export", run / "weights.safetensors", out}).exit_code, 2);
}

// An exported model in a config starts with the losses of the run that it comes from.
TEST(Conversion, TrainsAnExportedModelByItsConfig) {
  if (!KINDLING_HAS_INTEROP) GTEST_SKIP() << "built with KINDLING_INTEROP=OFF";
  const Scratch scratch;
  const auto fit = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> words{"fit",
                                   "-c",
                                   kConfigs / "digits_mlp.toml",
                                   "--trainer.max_epochs=2",
                                   "--trainer.num_threads=1",
                                   "--run.dir=" + (scratch / name).string(),
                                   "--quiet",
                                   "name=a"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramRun run = run_program(words);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return scratch / name / "a/0001";
  };
  const std::filesystem::path first = fit("first", {});
  const std::string file = scratch / "model.pt2";
  ASSERT_EQ(run_program({"export", first, file, "--train"}).exit_code, 0);
  // Both continue from the same weights.
  const std::string weights = first / "weights.safetensors";
  const std::filesystem::path written = fit("written", {"model.init_weights=" + weights});
  std::string data_and_optimizer = text_of(kConfigs / "digits_mlp.toml");
  data_and_optimizer = data_and_optimizer.substr(data_and_optimizer.find("[data]"));
  write_text(scratch / "exported.toml",
             "[model]\nname = \"exported\"\nfile = \"model.pt2\"\n" + data_and_optimizer);
  const ProgramRun run = run_program({"fit", "-c", scratch / "exported.toml", "--trainer.max_epochs=2",
                                      "--trainer.num_threads=1",
                                      "--run.dir=" + (scratch / "exported").string(), "--quiet", "name=a"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const StateDict ours = load_safetensors(scratch / "exported/a/0001/weights.safetensors");
  expect_equal_states(ours, load_safetensors(written / "weights.safetensors"));
  const std::filesystem::path folder = scratch / "exported/a/0001";
  const ProgramRun validated =
      run_program({"validate", "-c", folder / "config.toml", "--weights", folder.string(), "--quiet"});
  EXPECT_EQ(validated.exit_code, 0) << validated.err;
  // Without a run, the weights are those of the file.
  const ProgramRun of_file = run_program({"validate", "-c", scratch / "exported.toml", "--quiet"}),
                   of_first = run_program({"validate", first, "--quiet"});
  EXPECT_EQ(of_file.exit_code, 0) << of_file.err;
  EXPECT_EQ(of_file.out, of_first.out);
  EXPECT_EQ(run_program({"predict", "-c", scratch / "exported.toml", "--quiet"}).exit_code, 0);
}

// A python3 that answers as the program expects, instead of onnxruntime.
class PythonOnPath {
 public:
  explicit PythonOnPath(const Scratch& scratch)
      : file_(scratch / "bin/python3"), before_(std::getenv("PATH")) {
    std::filesystem::create_directories(scratch / "bin");
    ::setenv("PATH", ((scratch / "bin").string() + ":" + before_).c_str(), 1);
  }
  ~PythonOnPath() { ::setenv("PATH", before_.c_str(), 1); }
  PythonOnPath(const PythonOnPath&) = delete;
  PythonOnPath& operator=(const PythonOnPath&) = delete;

  void set(const std::string& script) const {
    write_text(file_, "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(file_, std::filesystem::perms::owner_all);
  }

 private:
  std::filesystem::path file_;
  std::string before_;
};

TEST(Conversion, VerifiesAnOnnxModelInOnnxruntime) {
  if (!KINDLING_HAS_INTEROP) GTEST_SKIP() << "built with KINDLING_INTEROP=OFF";
  const Scratch scratch;
  const std::string run = scratch / "runs/a/0001", out = scratch / "model.onnx";
  ASSERT_EQ(run_program({"fit", "-c", kConfigs / "digits.toml", "--trainer.max_epochs=1",
                         "--run.dir=" + (scratch / "runs").string(), "--quiet", "name=a"})
                .exit_code,
            0);
  const PythonOnPath python(scratch);
  const auto verify = [&](std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"export", run, out, "--verify"});
    return run_program(more);
  };
  python.set("echo \"ModuleNotFoundError: No module named 'onnxruntime'\" >&2; exit 1");
  const ProgramRun missing = verify();
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_NE(missing.err.find("cannot import onnxruntime (ModuleNotFoundError"), std::string::npos)
      << missing.err;
  EXPECT_NE(missing.err.find("python3 -m pip install onnxruntime"), std::string::npos) << missing.err;
  EXPECT_FALSE(std::filesystem::exists(out));

  python.set(
      "[ $# = 2 ] || { test -f \"$3\" && test -f \"$4\" && { echo warning >&2; echo; echo compared 0.0001 "
      "2.0 0; echo warning >&2; }; }");
  const ProgramRun same = verify();
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_NE(
      same.out.find("samples: output 0 of onnxruntime differs by up to 1e-4, and its largest number is 2"),
      std::string::npos)
      << same.out;
  const ProgramRun apart = verify({"--tolerance", "1e-5"});
  EXPECT_EQ(apart.exit_code, 1);
  EXPECT_NE(apart.err.find("expected: at most 1e-05 of the largest output"), std::string::npos) << apart.err;
  for (const std::string difference : {"inf", "nan", "-1"}) {
    python.set("[ $# = 2 ] || { echo; echo compared " + difference + " 2.0 0; }");
    EXPECT_EQ(verify().exit_code, 1) << difference;
  }
  for (const std::string number : {"nan", "inf", "-1"})
    EXPECT_EQ(verify({"--tolerance", number}).exit_code, 2) << number;
  python.set("[ $# = 2 ] || { echo 'InvalidGraph: no such operator'; exit 1; }");
  const ProgramRun broken = verify();
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_NE(broken.err.find("onnxruntime cannot run it: InvalidGraph"), std::string::npos) << broken.err;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.folder()))
    EXPECT_EQ(entry.path().string().find("verified"), std::string::npos) << entry.path();

  EXPECT_EQ(run_program({"export", run, scratch / "a.pt2", "--verify"}).exit_code, 2);
  EXPECT_EQ(run_program({"export", scratch / "a.pt2", scratch / "a.onnx", "--verify"}).exit_code, 2);
}

// The batch is filled with rows of the data, as the program needs it.
TEST(Conversion, VerifiesAProgramOfOneBatchSize) {
  if (!KINDLING_HAS_INTEROP) GTEST_SKIP() << "built with KINDLING_INTEROP=OFF";
  const Scratch scratch;
  torch::nn::Linear model(2, 1);
  const at::Tensor x = at::linspace(-2, 3, 14).view({7, 2}).sin();
  const auto forward = [&](const Batch& batch) { return Batch::leaf(model(batch[0])); };
  export_program(*model, forward, Batch{x.narrow(0, 0, 4)},
                 {.path = scratch / "model.pt2", .dynamic_batch = false, .train = true});
  save_safetensors({.tensors = {{"x", x}, {"y", at::zeros({7, 1})}}, .metadata = {}},
                   scratch / "data.safetensors");
  write_text(scratch / "c.toml", R"(
[model]
name = "exported"
file = "model.pt2"
loss = "mse"
[data]
name = "arrays"
file = "data.safetensors"
batch_size = 4
train = [0, 4]
val = [4, 7]
[optimizer]
name = "sgd"
)");
  ASSERT_EQ(run_program({"fit", "-c", scratch / "c.toml", "--trainer.max_epochs=1", "name=a", "--quiet",
                         "--run.dir=" + (scratch / "runs").string()})
                .exit_code,
            0);
  const PythonOnPath python(scratch);
  const std::string arrays = scratch / "arrays.npz";
  python.set("[ $# = 2 ] || { cp \"$4\" '" + arrays + "'; echo; echo compared 0 2.0 0; }");
  const ProgramRun run = run_program({"export", scratch / "runs/a/0001", scratch / "model.onnx", "--verify"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("verified on 4 samples"), std::string::npos) << run.out;
  for (const NpyArray& array : read_npz(arrays)) EXPECT_EQ(array.shape[0], 4) << array.name;
}

// The script that the program gives to Python, with arrays in place of onnxruntime's and the model's outputs.
TEST(Conversion, VerifyingFindsOutputsThatAreNotFinite) {
  const std::string python = python_with_torch().empty() ? "python3" : python_with_torch();
  const std::string modules = KINDLING_CONFIGS "/../.deps/onnx";  // where scripts/test.sh installs numpy
  if (!KINDLING_HAS_INTEROP ||
      std::system(("PYTHONPATH=" + modules + " " + python + " -c 'import numpy' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "built with KINDLING_INTEROP=OFF, or there is no numpy";
  const Scratch scratch;
  const std::string run = scratch / "runs/a/0001";
  ASSERT_EQ(run_program({"fit", "-c", kConfigs / "digits.toml", "--trainer.max_epochs=1",
                         "--run.dir=" + (scratch / "runs").string(), "--quiet", "name=a"})
                .exit_code,
            0);
  write_text(scratch / "onnxruntime.py", R"(
import numpy
nan, inf = numpy.nan, numpy.inf
class SessionOptions: pass
class InferenceSession:
    def __init__(self, *_, **__): pass
    def get_inputs(self): return []
    def run(self, *_): return [numpy.array(each, numpy.float32) for each in OURS]
numpy.load = lambda _: {f"out{i}": numpy.array(each, numpy.float32) for i, each in enumerate(WANTED)}
)");
  const std::string module = text_of(scratch / "onnxruntime.py");
  const PythonOnPath on_path(scratch);
  on_path.set("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=" + scratch.folder().string() + ":" + modules + " exec " +
              python + " \"$@\"");
  const auto exit_code = [&](const std::string& ours, const std::string& wanted) {
    std::string values = "\nOURS, WANTED = " + ours + ", " + wanted + "\n";
    write_text(scratch / "onnxruntime.py", module + values);
    return run_program({"export", run, scratch / "model.onnx", "--verify"}).exit_code;
  };
  EXPECT_EQ(exit_code("[[1, -inf, nan]]", "[[1, -inf, nan]]"), 0);
  EXPECT_EQ(exit_code("[[2, -inf, nan]]", "[[1, -inf, nan]]"), 1);
  EXPECT_EQ(exit_code("[[1, 2]]", "[[1, -inf]]"), 1);
  EXPECT_EQ(exit_code("[[1, inf]]", "[[1, -inf]]"), 1);
  EXPECT_EQ(exit_code("[[1, nan]]", "[[1, 2]]"), 1);
  EXPECT_EQ(exit_code("[[1, 2]]", "[[nan, nan]]"), 1);
  EXPECT_EQ(exit_code("[[1], [1, -inf]]", "[[1], [2, -inf]]"), 1);
  EXPECT_EQ(exit_code("[[1e-6], [1.00001]]", "[[0], [1]]"), 1);  // no number is near 0
}

TEST(Conversion, NamesAFileOfAnotherKind) {
  const Scratch scratch;
  const std::string in = scratch / "d.toml", out = scratch / "w.safetensors";
  write_text(in, "# Kindling trains models described by a config file.\n");
  const ProgramRun run = run_program({"import", in, out});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(run.err.starts_with(in +
                                  ": not a safetensors or .pt file; expected: weights saved by safetensors, "
                                  "torch.save, or Kindling; " +
                                  in + ", byte 0: the header's length is "))
      << run.err;
  const ProgramRun missing = run_program({"import", scratch / "nope.toml", out});
  EXPECT_EQ(missing.err.find("not a safetensors"), std::string::npos) << missing.err;
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(Conversion, WithoutInteropNamesTheOptionToBuildWith) {
  if (KINDLING_HAS_INTEROP) GTEST_SKIP() << "built with KINDLING_INTEROP=ON";
  const Scratch scratch;
  write_text(scratch / "exported.toml",
             "[model]\nname = \"exported\"\nfile = \"model.pt2\"\n[data]\nname = \"digits\"\n");
  const std::string in = scratch / "model.pt2", config = scratch / "exported.toml";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"export", in, scratch / "model.onnx"},
        {"fit", "-c", config, "--trainer.max_epochs=1", "--quiet", "--run.dir=" + scratch.folder().string(),
         "name=a"}}) {
    const ProgramRun run = run_program(words);
    EXPECT_NE(run.exit_code, 0) << run.out;
    EXPECT_NE(run.err.find("KINDLING_INTEROP=ON"), std::string::npos) << run.err;
  }
}

TEST(Conversion, RefusesInvalidRequests) {
  const Scratch scratch;
  const std::string in = kPythonFiles / "torch_2.13.0/gpt.pt", out = scratch / "w.safetensors";
  const auto expect_refused = [](std::vector<std::string> words, int exit_code, const std::string& text) {
    const ProgramRun run = run_program(std::move(words));
    EXPECT_EQ(run.exit_code, exit_code);
    EXPECT_NE(run.err.find(text), std::string::npos) << run.err;
  };
  expect_refused({"import", in, scratch / "w.bin"}, 2,
                 "unsupported extension '.bin'; expected: .safetensors or .pt");
  expect_refused({"import", in, out, "--map", "ln"}, 2, "--map ln: '=' is missing");
  expect_refused(
      {"import", in, out, "--map", "ln.weigth=x"}, 2,
      "--map ln.weigth=x: no name begins with 'ln.weigth'; expected: the beginning of a tensor name; did "
      "you mean 'ln.weight'?");
  expect_refused({"import", in, out, "--map", "ln.weight=x", "--map=ln.bias=x"}, 1,
                 "'ln.weight' and 'ln.bias'");
  expect_refused({"import", kPythonFiles / "torch_2.13.0/nested.pt", out}, 1,
                 "the key \"model\", which is a state dict");
  EXPECT_FALSE(std::filesystem::exists(out));
  write_safetensors(scratch / "empty.safetensors", {}, {});
  expect_refused({"import", scratch / "empty.safetensors", out}, 1, "it contains no tensors");
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace kindling

// Serves compiled code with the weights of a run:
//
//   compiled_digits digits_compiled.pt2 digits.pt2 runs/config/0001/weights.safetensors

#include <kindling/kindling.h>

#include <chrono>
#include <iostream>

namespace kd = kindling;

namespace {

// Measures single images, as a server receives them.
template <class Model>
double microseconds_per_image(Model& model, const at::Tensor& images) {
  using Clock = std::chrono::steady_clock;
  for (std::int64_t i = 0; i < images.size(0); ++i) model.forward(images.narrow(0, i, 1));  // warm
  const Clock::time_point begin = Clock::now();
  for (std::int64_t i = 0; i < images.size(0); ++i) model.forward(images.narrow(0, i, 1));
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() /
         static_cast<double>(images.size(0));
}

void serve(const char* package_file, const char* program_file, const char* weights_file) {
  at::set_num_threads(1);  // enough for such a small model
  // The program describes the inputs and outputs of the package and the names of its weights.
  const auto model = std::make_shared<kd::ExportedModule>(kd::ExportedModuleOptions{.file = program_file});
  kd::load_weights(*model, weights_file);
  kd::CompiledPackage package(package_file, *model);

  kd::Digits data({.batch_size = 360});
  const auto loader = data.val_dataloader();
  const kd::Batch batch = data.on_after_batch_transfer(*loader->begin());  // bytes become numbers
  const at::Tensor digits = package.forward(batch[0]).argmax(1);
  std::cout << "the first digits are";
  for (std::int64_t i = 0; i < 10; ++i) std::cout << " " << digits[i].item<std::int64_t>();
  std::cout << "\naccuracy " << digits.eq(batch.labels()).to(at::kDouble).mean().item<double>() << "\n";

  const kd::EvaluationGuard evaluation(*model);
  std::cout << "the model takes " << microseconds_per_image(*model, batch[0])
            << " us for an image, the package " << microseconds_per_image(package, batch[0]) << " us\n";
  // After another training run: load_weights(*model, …); package.set_weights(*model);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: compiled_digits PACKAGE.pt2 PROGRAM.pt2 WEIGHTS.safetensors\n";
    return 2;
  }
  try {
    serve(argv[1], argv[2], argv[3]);
  } catch (const kd::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}

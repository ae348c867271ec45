#include "programs/compiled_code.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>

#include <exception>
#include <unordered_map>

#include "kindling/base/error.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

// LibTorch's part throws errors of several kinds, some of many lines.
template <class Call>
auto named(const std::string& place, Call call) {
  try {
    return call();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw CheckpointError(
        {.place = place,
         .found = "LibTorch says: " + one_line(text.substr(0, text.find('\n'))),
         .wanted = "a package of torch._inductor.aoti_compile_and_package, compiled for this kind of machine",
         .remedy = "compile it again, with a PyTorch of LibTorch's version"});
  }
}

}  // namespace

CompiledCode::CompiledCode(const std::filesystem::path& path) : place_(path.string()) {
  if (!std::filesystem::is_regular_file(path))
    throw CheckpointError({.place = place_, .found = "there is no such file"});
  named(place_, [&] {
    loader_ = std::make_unique<torch::inductor::AOTIModelPackageLoader>(path.string());
    device_ = at::Device(loader_->get_metadata()["AOTI_DEVICE_KEY"]);
  });
}

std::map<std::string, at::Tensor> CompiledCode::constants() const {
  return named(place_, [&] {
    const auto constants = loader_->get_runner()->extract_constants_map(/*use_inactive=*/false);
    return std::map<std::string, at::Tensor>(constants.begin(), constants.end());
  });
}

// There are two sets of constants, of which the code takes the active one. An update fills the other one, so
// that calls under way keep theirs; they change places between two calls. What the code computes once of its
// constants, it computes again in the first call that follows.
void CompiledCode::replace(const std::map<std::string, at::Tensor>& values) {
  const at::NoGradGuard no_grad;
  named(place_, [&] {
    torch::inductor::AOTIModelContainerRunner& runner = *loader_->get_runner();
    const std::map<std::string, at::Tensor> now = constants();
    std::unordered_map<std::string, at::Tensor> by_inner_name;
    const auto names = runner.getConstantNamesToOriginalFQNs();
    for (const auto& [inner_name, name] : names) {
      const auto known = now.find(name);
      if (known == now.end()) continue;  // computed
      const at::Tensor& old = known->second;
      // The update copies a value's whole storage, and takes its strides: a tensor with nothing around it,
      // laid out as the code was compiled for.
      by_inner_name[inner_name] =
          at::empty_strided(old.sizes(), old.strides(), old.options()).copy_(values.at(name));
    }
    runner.update_constant_buffer(by_inner_name, /*use_inactive=*/true, /*validate_full_updates=*/true);
    runner.swap_constant_buffer();
    // On a device, kernels of earlier calls may still read the old ones. And where some are computed, the
    // next update would look at those that are freed.
    if (device_.is_cpu() && names.size() == now.size()) runner.free_inactive_constant_buffer();
  });
}

std::vector<at::Tensor> CompiledCode::run(const std::vector<at::Tensor>& inputs) {
  return named(place_, [&] { return loader_->run(inputs); });
}

}  // namespace kindling

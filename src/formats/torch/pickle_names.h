#pragma once

#include <string_view>

// The names in pickles of torch.save that the reader recognises: module and name.
namespace kindling {

inline constexpr std::string_view kOrderedDict = "collections OrderedDict",
                                  kDefaultDict = "collections defaultdict", kTorchSize = "torch Size",
                                  kTensorClass = "torch Tensor",
                                  kParameterClass = "torch.nn.parameter Parameter",
                                  kVariableClass = "torch.autograd.variable Variable",
                                  kUntypedStorage = "torch.storage UntypedStorage",
                                  kRebuildTensorV1 = "torch._utils _rebuild_tensor",
                                  kRebuildTensor = "torch._utils _rebuild_tensor_v2",
                                  kRebuildTensorV3 = "torch._utils _rebuild_tensor_v3",
                                  kRebuildParameter = "torch._utils _rebuild_parameter",
                                  kRebuildParameterWithState = "torch._utils _rebuild_parameter_with_state",
                                  kRebuildFromType = "torch._tensor _rebuild_from_type_v2",
                                  kSet = "builtins set", kFrozenSet = "builtins frozenset",
                                  kDict = "builtins dict";

inline constexpr std::string_view kPickleNames[] = {kOrderedDict,      kDefaultDict,
                                                    kTorchSize,        kTensorClass,
                                                    kParameterClass,   kVariableClass,
                                                    kUntypedStorage,   kRebuildTensorV1,
                                                    kRebuildTensor,    kRebuildTensorV3,
                                                    kRebuildParameter, kRebuildParameterWithState,
                                                    kRebuildFromType,  kSet,
                                                    kFrozenSet,        kDict};

// Returns the constant for a recognised name, also of a type of storages; empty: another name.
std::string_view known_name(std::string_view module, std::string_view name);

// True if Python's torch.load accepts the name with weights_only=True.
bool is_safe_in_python(std::string_view module, std::string_view name);

}  // namespace kindling

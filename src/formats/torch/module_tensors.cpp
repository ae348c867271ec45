#include "formats/torch/module_tensors.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "formats/torch/python_conversion.h"
#include "formats/torch/script_classes.h"
#include "formats/torch/torch_weights.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

using Kind = PickleValue::Kind;
using Place = PickleValue::Place;

// Far beyond any model; a hostile file could repeat modules without end.
constexpr std::size_t kMaxModuleEntries = 20'000'000, kMaxModuleDepth = 256,
                      kMaxNameBytes = std::size_t{1} << 26;

constexpr std::string_view kScriptModules = "__torch__";

// Returns the attributes of an object; nullptr: it has none that are a dict.
const PickleValue* attributes_of(const Pickle& pickle, const PickleValue& object) {
  if (object.kind != Kind::object) return nullptr;
  const PickleValue& state = pickle[object.items[2]];
  return state.kind == Kind::dict ? &state : nullptr;
}

const PickleValue* dict_of(const Pickle& pickle, const PickleValue& attributes, std::string_view name) {
  const PickleValue* const found = entry_of(pickle, attributes, name);
  return found != nullptr && found->kind == Kind::dict ? found : nullptr;
}

bool is_python_module(const Pickle& pickle, const PickleValue& value) {
  const PickleValue* const attributes = attributes_of(pickle, value);
  return attributes != nullptr && dict_of(pickle, *attributes, "_parameters") != nullptr &&
         dict_of(pickle, *attributes, "_buffers") != nullptr &&
         dict_of(pickle, *attributes, "_modules") != nullptr;
}

}  // namespace

// The modules that have not been visited are a list, because a hostile file nests them deeply.
class ModuleTensors::Walk {
 public:
  explicit Walk(const TorchContainer& file)
      : file_(file),
        pickle_(*file.pickle),
        classes_(file),
        is_lost_(pickle_.reaching({Kind::other_tensor})) {}

  std::vector<NamedTensor> run(Place root) {
    open_.push_back({root, "", 0});
    while (!open_.empty()) {
      const Module module = std::move(open_.back());
      open_.pop_back();
      if (module.depth > kMaxModuleDepth) refuse(module.path, "modules are nested too deeply");
      const std::size_t former = open_.size();
      if (is_python_module(pickle_, pickle_[module.place]))
        take_python_module(module);
      else
        take_script_module(module);
      std::reverse(open_.begin() + static_cast<std::ptrdiff_t>(former), open_.end());
    }
    return std::move(found_);
  }

 private:
  using Names = std::unordered_set<std::string_view>;
  struct Module {
    Place place;
    std::string path;  // with a dot at its end
    std::size_t depth;
  };

  [[noreturn]] void refuse(std::string_view path, const std::string& found, const std::string& wanted = "",
                           const std::string& remedy = "") const {
    const std::string_view name = path.substr(0, path.empty() ? 0 : path.size() - 1);  // without its dot
    throw CheckpointError({.place = file_.place + (name.empty() ? "" : ", module " + quoted_key(name)),
                           .found = found,
                           .wanted = wanted,
                           .remedy = remedy});
  }

  template <class Visit>
  void for_each_entry(const Module& module, const PickleValue& dict, Visit visit) {
    entries_ += dict.items.size() + 1;
    if (entries_ > kMaxModuleEntries) refuse("", "its modules have too many attributes");
    for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const PickleValue& name = pickle_[dict.items[i]];
      if (name.kind != Kind::text)
        refuse(module.path, "a name in it is " + described(pickle_, name), "a string");
      visit(name.text, dict.items[i + 1]);
    }
  }

  void take_python_module(const Module& module) {
    const PickleValue& attributes = *attributes_of(pickle_, pickle_[module.place]);
    Names not_saved;
    if (const PickleValue* names = entry_of(pickle_, attributes, "_non_persistent_buffers_set"))
      for (const Place name : names->items) not_saved.insert(pickle_[name].text);
    for (const char* const part : {"_parameters", "_buffers"})
      for_each_entry(module, *dict_of(pickle_, attributes, part), [&](std::string_view name, Place value) {
        if (part != std::string_view("_buffers") || !not_saved.contains(name)) add(module, name, value);
      });
    for_each_entry(module, *dict_of(pickle_, attributes, "_modules"),
                   [&](std::string_view name, Place value) {
                     if (pickle_[value].kind != Kind::none) enter(module, name, value);
                   });
    check_others(module, attributes, {"_parameters", "_buffers", "_modules"});
  }

  void take_script_module(const Module& module) {
    const PickleValue& object = pickle_[module.place];
    const PickleValue& type = pickle_[object.items[0]];
    const ScriptClass& known = classes_.find(pickle_[type.items[0]].text, type.text);
    const PickleValue* const attributes = attributes_of(pickle_, object);
    if (attributes == nullptr) return;
    std::unordered_map<std::string_view, Place> places;
    for_each_entry(module, *attributes, [&](std::string_view name, Place value) { places[name] = value; });
    Names known_names;
    for (const std::vector<std::string>* names : {&known.parameters, &known.buffers})
      for (const std::string& name : *names) {
        if (!places.contains(name))
          refuse(module.path, "it has no attribute " + quoted_key(name), "a tensor", kDamagedTorchFile);
        add(module, name, places[name]);
        known_names.insert(name);
      }
    for_each_entry(module, *attributes, [&](std::string_view name, Place value) {
      if (!is_script(value)) return;
      enter(module, name, value);
      known_names.insert(name);
    });
    check_others(module, *attributes, known_names);
  }

  bool is_script(Place place) {
    const PickleValue& value = pickle_[place];
    if (value.kind != Kind::object) return false;
    const PickleValue& type = pickle_[value.items[0]];
    return type.kind == Kind::name && !type.items.empty() &&
           pickle_[type.items[0]].text.starts_with(kScriptModules) &&
           !pickle_[type.items[0]].text.starts_with("__torch__.torch.classes") &&
           classes_.find(pickle_[type.items[0]].text, type.text).is_module;
  }

  void add(const Module& module, std::string_view name, Place value) {
    const Kind kind = pickle_[value].kind;
    if (kind == Kind::none) return;
    if (kind != Kind::tensor && kind != Kind::other_tensor)
      refuse(module.path, "its " + quoted_key(name) + " is " + described(pickle_, pickle_[value]), "a tensor",
             conversion());
    found_.push_back({module.path + std::string(name), value});
    count_name(found_.back().name);
  }
  void enter(const Module& module, std::string_view name, Place value) {
    if (!is_python_module(pickle_, pickle_[value]) && !is_script(value))
      refuse(module.path, "its module " + quoted_key(name) + " is " + described(pickle_, pickle_[value]),
             "a module with _parameters, _buffers and _modules", conversion());
    open_.push_back({value, module.path + std::string(name) + ".", module.depth + 1});
    count_name(open_.back().path);
  }
  void count_name(const std::string& name) {
    name_bytes_ += name.size();
    if (name_bytes_ > kMaxNameBytes) refuse("", "the names of its modules are too long");
  }

  // A quantized layer keeps its weights in an object, which Python's state_dict() unpacks.
  void check_others(const Module& module, const PickleValue& attributes, const Names& known) {
    for_each_entry(module, attributes, [&](std::string_view name, Place value) {
      if (is_lost_[value] && !known.contains(name))
        refuse(module.path,
               "its attribute " + quoted_key(name) + " contains quantized or other tensors that are not read",
               "dense tensors", "save the weights before they are quantized");
    });
  }
  std::string conversion() const {
    return conversion_in_python(file_.place, {.suffix = ".state_dict()", .runs_code = true});
  }

  const TorchContainer& file_;
  const Pickle& pickle_;
  ScriptClasses classes_;
  std::vector<bool> is_lost_;
  std::vector<Module> open_;
  std::vector<NamedTensor> found_;
  std::size_t name_bytes_ = 0, entries_ = 0;
};

ModuleTensors::ModuleTensors(const TorchContainer& file) : file_(file) {}

bool ModuleTensors::is_script_module(Place place) const {
  const Pickle& pickle = *file_.pickle;
  const PickleValue& value = pickle[place];
  if (!file_.is_script || value.kind != Kind::object) return false;
  const PickleValue& type = pickle[value.items[0]];
  return type.kind == Kind::name && !type.items.empty() &&
         pickle[type.items[0]].text.starts_with(kScriptModules);
}

bool ModuleTensors::is_module(Place place) const {
  return is_python_module(*file_.pickle, (*file_.pickle)[place]) || is_script_module(place);
}

std::vector<NamedTensor> ModuleTensors::of(Place module) const { return Walk(file_).run(module); }

}  // namespace kindling

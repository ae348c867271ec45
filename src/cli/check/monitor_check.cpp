#include "cli/check/monitor_check.h"

#include <algorithm>

#include "kindling/base/suggest.h"
#include "kindling/training/early_stopping.h"
#include "loggers/metric_charts.h"
#include "nn/monitored_value.h"

namespace kindling {
namespace {

// True for values that the trainer adds to the records of epochs.
bool is_from_trainer(const std::string& name) {
  return is_machine_metric(name) || name == "lr" || name == "skipped_steps" || name.starts_with("grad_norm/");
}

// Callbacks of the user may add values to the records. A misspelled name gets a warning then.
bool has_own_callbacks(const TrainerOptions& options) {
  return std::ranges::any_of(options.callbacks, [](const auto& callback) {
    return callback->averaging() == nullptr && dynamic_cast<const EarlyStopping*>(callback.get()) == nullptr;
  });
}

class MonitorCheck {
 public:
  MonitorCheck(const FitParts& fit, FitFindings& findings) : fit_(fit), findings_(findings) {}

  void check(const std::string& table) {
    const std::string key = table + ".monitor", name = fit_.text(key), mode = fit_.text(table + ".mode");
    if (name.empty()) return check_default(table);
    const std::vector<std::string> names = logged_names();
    const bool is_known = std::ranges::find(names, name) != names.end() || is_from_trainer(name);
    if (!is_known && has_own_callbacks(fit_.trainer))
      warn_of_misspelling(key, name, names);
    else if (!is_known && is_certain(table, name, names))
      findings_.add(key, "'" + key + "': the model logs no value '" + name + "'", names);
    else
      findings_.collect(key, [&] { monitor_of(name, mode, *fit_.model, key); });
  }

  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

 private:
  // Without a monitor, callbacks and schedules watch the value that the model names.
  void check_default(const std::string& table) {
    const std::string name = fit_.model->monitor().name;
    std::vector<std::string> names = logged_names();
    if (fit_.config.batch_finder.is_on)  // no batch was tried
      std::erase_if(names, [](const std::string& each) { return each.starts_with("val_"); });
    const bool is_known = std::ranges::find(names, name) != names.end() || is_from_trainer(name);
    const bool is_checked =
        fit_.is_data_complete && table != "checkpoint" && !has_own_callbacks(fit_.trainer);
    if (!is_checked || is_known || fit_.can_validate()) return;
    findings_.add(table + ".monitor",
                  "'" + table + ".monitor': it is '" + name +
                      "', as the model says, but the run has no validation to log it",
                  names);
  }

  void warn_of_misspelling(const std::string& key, const std::string& name,
                           const std::vector<std::string>& names) {
    const std::string guess = fit_.trial.has_trained ? nearest(name, names) : "";
    if (!guess.empty())
      warnings_.push_back(key + ": the model logs no value '" + name +
                          "', so a callback has to add it; did you mean '" + guess + "'?");
  }

  // The values of epoch records; if no batch could be tried, those that models usually have.
  std::vector<std::string> logged_names() const {
    if (fit_.trial.has_trained) return fit_.trial.names;
    std::vector<std::string> names{"train_loss", "val_loss"};
    if (const std::string own = fit_.model->monitor().name; own != "val_loss") {
      if (own.starts_with("val_")) names.push_back("train_" + own.substr(4));
      names.push_back(own);
    }
    for (const std::string& metric : fit_.config.model.metrics)
      for (const char* stage : {"train_", "val_"}) names.push_back(stage + metric);
    return names;
  }

  // False if the run may have a value that is not among `names`.
  bool is_certain(const std::string& table, const std::string& name,
                  const std::vector<std::string>& names) const {
    // Only the data knows its further validation sets, whose values are val_loss/NAME.
    if (!fit_.trial.has_trained)
      return !findings_.empty() && name.find('/') == std::string::npos && !nearest(name, names).empty();
    if (fit_.trial.has_validated || !name.starts_with("val_")) return true;
    return table != "checkpoint" &&
           !fit_.can_validate();  // a checkpoint without a value is only not the best
  }

  const FitParts& fit_;
  FitFindings& findings_;
  std::vector<std::string> warnings_;
};

}  // namespace

std::vector<std::string> check_monitors(const FitParts& fit, FitFindings& findings) {
  if (!fit.model) return {};
  MonitorCheck monitors(fit, findings);
  monitors.check("checkpoint");
  if (fit.text("early_stopping.strict") == "true") monitors.check("early_stopping");
  if (fit.trainer.schedule.plateau) monitors.check("schedule");
  return monitors.warnings();
}

}  // namespace kindling

#include "kindling/loggers/run_folder.h"

#include <string_view>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/loggers/csv_logger.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/loggers/tensorboard_logger.h"
#include "loggers/run_claim.h"
#include "loggers/run_report.h"

namespace kindling {
namespace {

const std::string& directory_name(const std::string& name) {
  const bool is_path = name.find_first_of(std::string_view("/\0", 2)) != std::string::npos;
  if (!is_path && !name.empty() && name != "." && name != "..") return name;
  throw Error({.place = "RunFolder",
               .found = "the name '" + name + "'",
               .wanted = "the name of a directory, without '/'",
               .remedy = "put the path into the first argument"});
}

}  // namespace

RunFolder::RunFolder(const std::filesystem::path& dir, const std::string& name)
    : RunFolder(claim_run(dir / directory_name(name))) {}

RunFolder::RunFolder(std::filesystem::path run) : path_(std::move(run)), lock_(path_) {
  delete_stale_temporary_files(path_);
}

RunFolder::RunFolder(RunClaim claim) : path_(std::move(claim.run)), lock_(std::move(claim.lock)) {}

std::vector<std::shared_ptr<Logger>> RunFolder::loggers(const EpochTableOptions& monitored) const {
  return {
      std::make_shared<JsonlLogger>(path_ / "metrics.jsonl"),
      std::make_shared<CsvLogger>(path_ / "metrics.csv"), std::make_shared<TensorBoardLogger>(path_),
      std::make_shared<RunReport>(path_, RunReportOptions{.is_final_at_finish = true,
                                                          .monitor = monitored.monitor,
                                                          .higher_is_better = monitored.higher_is_better})};
}

}  // namespace kindling

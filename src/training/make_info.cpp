#include "training/make_info.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

// Says aloud what is not as it was asked for.
void check_number(const TrainerOptions& options, const std::string& asked, std::int64_t found) {
  const std::int64_t wanted = options.num_gpus == -1 ? 1 : options.num_gpus;
  if (found >= wanted) return;
  const std::string reason = why_no_more_gpus();
  if (options.require_gpus)
    throw DeviceError(
        {.place = "Trainer",
         .found = asked + ", but " + std::to_string(found) + " can be used: " + reason,
         .wanted = "as many cards, because require_gpus is set",
         .remedy = "run `kindling devices`, or leave require_gpus off to train on what there is"});
  log_warning(asked + ", but " + reason + ": training goes on on " +
              (found == 0              ? "the CPU"
               : options.process_group ? "those that there are"
                                       : "the first card"));
}

// Of the cards of this machine, which its processes divide among them.
Device card_of_process(const TrainerOptions& options, const std::string& asked,
                       const std::vector<Device>& cards) {
  const auto place = static_cast<std::size_t>(options.process_group->local_rank());
  const Device card = cards[place % cards.size()];
  if (place < cards.size()) return card;
  const std::string found = asked + ": of the processes on this machine, number " +
                            std::to_string(place + 1) + " finds " + std::to_string(cards.size()) +
                            (cards.size() == 1 ? " card" : " cards");
  if (options.require_gpus)
    throw DeviceError({.place = "Trainer",
                       .found = found,
                       .wanted = "a card for each, because require_gpus is set",
                       .remedy = "raise num_gpus, which is that of the whole machine, or start fewer"});
  log_warning(found + ": it shares " + card.str() + " with another one, which NCCL refuses");
  return card;
}

std::vector<Device> cards_of(const TrainerOptions& options) {
  std::vector<Device> cards = first_gpus(options.num_gpus);
  const std::string asked = "num_gpus = " + std::to_string(options.num_gpus);
  if (cards.size() > 1 && !options.process_group)
    log_warning(asked +
                ": this process trains on the first card alone, the others stay unused; to use them, start "
                "one process for each and set process_group (`kindling fit` does so by itself)");
  check_number(options, asked, static_cast<std::int64_t>(cards.size()));
  if (options.process_group && !cards.empty()) return {card_of_process(options, asked, cards)};
  return cards;
}

}  // namespace

std::shared_ptr<TrainerInfo> make_info(const TrainerOptions& options) {
  auto info = std::make_shared<TrainerInfo>();
  info->gpus = cards_of(options);
  info->max_epochs = options.max_epochs;
  info->precision = Precision::named(options.precision);
  info->deterministic_operators = DeterministicOperators(options.deterministic);
  info->float32_matmul_precision = options.float32_matmul_precision;
  if (options.profile) info->clock = std::make_unique<EpochClock>();
  return info;
}

}  // namespace kindling

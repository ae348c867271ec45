#pragma once

namespace kindling {

// Exit codes of the program other than 0 and 128 + signal number. kFailureCode is for all other errors.
inline constexpr int kFailureCode = 1, kConfigErrorCode = 2, kDataErrorCode = 3, kDivergedCode = 4;

// SLURM has refused to requeue the job of a run that is saved: EX_TEMPFAIL, "try again later".
inline constexpr int kRequeueRefusedCode = 75;

// Exit code of a rank whose training is complete but whose output was lost; shells show it as ended by
// SIGPIPE. The launcher then exits with kFailureCode.
inline constexpr int kOutputLostInRankCode = 141;

}  // namespace kindling

// The doctor's words for a survey's findings. Pure.
#pragma once

#include <string_view>

#include "inspect/doctor_exam.h"

namespace deepfreeze {

struct DoctorWords {
  std::string_view kind;
  Weight weight = Weight::kNote;
  std::string_view means;
  std::string_view remedy;
};

[[nodiscard]] Complaint complaint_of(const DoctorWords& words, std::string place,
                                     std::string detail);

[[nodiscard]] const DoctorWords& words_for(OddityKind kind);
[[nodiscard]] const DoctorWords& words_for_damaged_checkpoint();
[[nodiscard]] const DoctorWords& words_for_unread_checkpoint();
[[nodiscard]] const DoctorWords& words_for_remembered_fault();
[[nodiscard]] const DoctorWords& words_for_files_elsewhere();

}  // namespace deepfreeze

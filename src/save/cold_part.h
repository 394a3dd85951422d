// The cold files of one save, written or linked: under the names of unsealed files, so that they
// are sealed with the others. Used by the engine's worker.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "arena/image.h"
#include "pipeline/write_engine.h"
#include "save/cold_files.h"
#include "save/save_plan.h"
#include "storage/vfs.h"

namespace deepfreeze {

class ColdPart {
 public:
  // `image` has the plan's sections, in memory as a whole.
  ColdPart(Vfs& vfs, const SavePlan& plan, const Image& image, ColdFiles& files)
      : vfs_(vfs), plan_(plan), image_(image), files_(files) {}

  // Once all is captured. `is_same`: every byte equals the save before. `make_header` makes the
  // header of a file, by its number among all of the plan, if it is written for this attempt.
  [[nodiscard]] Status bring(bool is_same, WriteEngine& write_engine,
                             const MakeHeader& make_header);

  // For the rank's first header: one for each cold file.
  [[nodiscard]] const std::vector<LinkedFile>& links() const { return links_; }
  // About a cold file, by its number among all of the plan; once bring() has succeeded.
  [[nodiscard]] std::uint64_t header_bytes(std::size_t file) const;
  [[nodiscard]] std::uint32_t header_crc(std::size_t file) const;
  [[nodiscard]] std::optional<Origin> origin(std::size_t file) const;
  [[nodiscard]] bool has_linked() const { return !links_.empty() && !has_written_; }
  [[nodiscard]] std::uint64_t bytes_written() const { return bytes_written_; }
  [[nodiscard]] double write_seconds() const { return write_seconds_; }

  // Once the attempt has an outcome, or has none for this process.
  void settle(bool committed);

 private:
  [[nodiscard]] bool link_in_turn();
  [[nodiscard]] bool link_all();
  [[nodiscard]] Status link_from(const AttemptName& source);
  void remove_links();
  [[nodiscard]] Status write(WriteEngine& write_engine);
  [[nodiscard]] PartSpec part_spec() const;
  [[nodiscard]] std::size_t first() const { return plan_.hot_file_count(); }

  Vfs& vfs_;
  const SavePlan& plan_;
  const Image& image_;
  ColdFiles& files_;
  ColdFiles::Turn turn_;
  bool is_new_ = false;  // the bytes differ from those of earlier saves
  bool has_written_ = false;
  std::vector<LinkedFile> links_;
  std::uint64_t bytes_written_ = 0;
  double write_seconds_ = 0;
};

}  // namespace deepfreeze

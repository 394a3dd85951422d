#include "save/cold_part.h"

#include <fmt/format.h>

#include <new>
#include <tuple>
#include <utility>

#include "base/fail_point.h"
#include "base/log.h"
#include "base/trace.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

Origin origin_of(const Identity& identity) {
  return {.run_id = identity.run_id,
          .point = {.generation = identity.generation,
                    .step = identity.step,
                    .save_index = identity.save_index,
                    .attempt_id = identity.attempt_id}};
}

}  // namespace

Status ColdPart::bring(bool is_same, WriteEngine& write_engine, const MakeHeader& make_header) {
  const trace::Span span("cold files");
  is_new_ = !is_same || !files_.are_of(plan_.table);
  if (is_new_) {
    std::vector<EncodedHeader> headers;
    files_.forget();
    for (std::size_t file = first(); file < plan_.file_count(); ++file) {
      DF_TRY(std::vector<std::byte> bytes, make_header(file));
      DF_TRY(const std::uint32_t crc, checked_header_crc(bytes));
      headers.push_back({.bytes = std::move(bytes), .crc = crc});
    }
    files_.begin(plan_.table, origin_of(plan_.identity), std::move(headers));
  }
  turn_ = files_.next_turn();
  const bool has_linked = !is_new_ && link_in_turn();
  for (std::size_t i = 0; i < files_.headers().size(); ++i) {
    LinkedFile link{.file = static_cast<std::uint32_t>(first() + i), .header_crc = 0, .origin = {}};
    if (!is_new_) link.header_crc = files_.headers()[i].crc;
    if (!is_new_) link.origin = files_.origin();
    links_.push_back(std::move(link));
  }
  return has_linked ? Status{} : write(write_engine);
}

// If retention has taken the last attempt of a copy, as with keep(last=1), the other copy serves.
bool ColdPart::link_in_turn() {
  if (turn_.must_write) return false;
  if (link_all()) return true;
  turn_ = files_.other_turn(turn_);
  if (!turn_.must_write && link_all()) return true;
  turn_ = files_.next_turn();
  return false;
}

// An attempt that was deleted meanwhile is no source any more; another one may be.
bool ColdPart::link_all() {
  for (const AttemptName& source : files_.sources(turn_.copy)) {
    const Status linked = link_from(source);
    if (linked) return true;
    remove_links();
    if (linked.error().code() == ErrorCode::kNotFound) continue;
    if (files_.warn_once()) {
      log_warning("tensors that have not changed are written anew: " + linked.error().message());
    }
    return false;
  }
  return false;
}

Status ColdPart::link_from(const AttemptName& source) {
  const std::vector<FileSpec> specs = plan_.file_specs();
  for (std::size_t file = first(); file < specs.size(); ++file) {
    const std::string from =
        attempt_dir_name(source) + "/" + sealed_file_name(plan_.identity_of(file).part);
    DF_TRY_VOID(vfs_.link_file(from, specs[file].name));
    DF_FAIL_POINT("save.cold_linked");
  }
  return {};
}

void ColdPart::remove_links() {
  const std::vector<FileSpec> specs = plan_.file_specs();
  for (std::size_t file = first(); file < specs.size(); ++file) {
    std::ignore = vfs_.remove_file(specs[file].name);
  }
}

// A part of its own. The memory of the cold files begins at a slab of the image.
PartSpec ColdPart::part_spec() const {
  const std::uint64_t begin = plan_.sections[first()].begin;
  std::vector<Section> sections;
  for (std::size_t file = first(); file < plan_.file_count(); ++file) {
    const Section& section = plan_.sections[file];
    sections.push_back({.begin = section.begin - begin, .end = section.end - begin});
  }
  const std::uint64_t bytes = plan_.sections.back().end - begin;
  std::vector<FileSpec> specs = plan_.file_specs();
  specs.erase(specs.begin(), specs.begin() + static_cast<std::ptrdiff_t>(first()));
  for (std::size_t i = 0; i < specs.size(); ++i) specs[i].header_bytes = header_bytes(first() + i);
  return {.files = std::move(specs),
          .image = Image(image_.at(begin, bytes), sections, kSlabBytes),
          .on_slab_free = [](std::size_t) {}};
}

// A second copy has the first one's header, so that either can stand for the other.
Status ColdPart::write(WriteEngine& write_engine) {
  has_written_ = true;
  PartSpec spec = part_spec();
  const std::uint64_t slabs = spec.image.slab_count();
  DF_TRY(const auto writer, write_engine.start(vfs_, std::move(spec)));
  for (std::uint64_t slab = 0; slab < slabs; ++slab) writer->push(slab);
  const Status finished =
      writer->finish([this](std::size_t file) -> Result<std::vector<std::byte>> {
        return files_.headers()[file].bytes;
      });
  bytes_written_ = writer->bytes_written();
  write_seconds_ = writer->write_seconds();
  return finished;
}

std::uint64_t ColdPart::header_bytes(std::size_t file) const {
  return files_.headers()[file - first()].bytes.size();
}

std::uint32_t ColdPart::header_crc(std::size_t file) const {
  return files_.headers()[file - first()].crc;
}

std::optional<Origin> ColdPart::origin(std::size_t file) const {
  return links_[file - first()].origin;
}

// A save that failed before bring() may have left other bytes in the image, and a file that was
// linked may be the cause of the failure: the next save writes its own.
void ColdPart::settle(bool committed) {
  if (!committed || links_.empty()) return files_.forget();
  try {
    files_.note(turn_, {plan_.identity.step, plan_.identity.attempt_id}, has_written_);
  } catch (const std::bad_alloc&) {  // the save itself is committed
    files_.forget();
  }
}

}  // namespace deepfreeze

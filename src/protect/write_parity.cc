#include "protect/write_parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <thread>
#include <utility>

#include "base/bounded_queue.h"
#include "base/fail_point.h"
#include "base/hex.h"
#include "base/mapped_memory.h"
#include "base/named_threads.h"
#include "base/random_id.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "format/layout.h"
#include "protect/erasure_code.h"
#include "protect/member_stream.h"
#include "protect/parity_layout.h"
#include "protect/parity_record.h"

namespace deepfreeze {
namespace {

// A range of one member's bytes, read ahead of the encoder by a thread of its own.
class StripReader {
 public:
  StripReader(const MemberStream& stream, std::uint64_t begin, std::uint64_t bytes,
              const ParityLimits& limits)
      : stream_(stream), begin_(begin), bytes_(bytes), limits_(limits) {}

  StripReader(const StripReader&) = delete;
  StripReader& operator=(const StripReader&) = delete;
  ~StripReader() { close(); }  // so that the thread ends

  [[nodiscard]] Status start() {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      DF_TRY(buffers_[i], MappedMemory::allocate(kStripBytes));
      empty_.push(i);
    }
    threads_ = start_threads(1, "df-parity-read", [this] {
      try {
        read_all();
      } catch (const std::exception&) {  // error_ says so from the beginning
        full_.close();
      }
    });
    if (!threads_.empty()) return {};
    return fail(ErrorCode::kNoSpace, "protect: the system refuses a thread");
  }
  // The next strip, until give_back(). Nothing: it could not be read.
  [[nodiscard]] const std::byte* take() {
    current_ = full_.pop();
    return current_ ? buffers_[*current_].bytes().data() : nullptr;
  }
  void give_back() { empty_.push(*current_); }
  // After take() has returned nothing.
  [[nodiscard]] Error error() const { return error_; }
  void close() {
    empty_.close();
    full_.close();
  }

 private:
  void read_all() {
    for (std::uint64_t done = 0; done < bytes_; done += kStripBytes) {
      const auto buffer = empty_.pop();
      if (!buffer) return;
      const std::uint64_t count = std::min<std::uint64_t>(kStripBytes, bytes_ - done);
      limits_.rate.take(count);
      Status read = stream_.read(begin_ + done, buffers_[*buffer].bytes().first(count));
      if (!read) {
        error_ = std::move(read).error();
        return full_.close();
      }
      if (!full_.push(*buffer)) return;
    }
  }

  const MemberStream& stream_;
  const std::uint64_t begin_;
  const std::uint64_t bytes_;
  const ParityLimits& limits_;
  std::array<MappedMemory, 2> buffers_;
  BoundedQueue<std::size_t> empty_{2};
  BoundedQueue<std::size_t> full_{2};
  std::optional<std::size_t> current_;
  // Written before full_ is closed, but if memory is refused.
  Error error_ = Error(ErrorCode::kNoSpace, "protect: memory is refused");
  std::vector<std::jthread> threads_;  // last: joined before all above goes
};

class ParityWriter {
 public:
  ParityWriter(const ParityTask& task, const ParityLimits& limits)
      : task_(task),
        limits_(limits),
        layout_(task.members.size(), task.parity),
        own_(*task.members[task.own].vfs),
        directory_(attempt_dir_name({task.manifest.point.step, task.manifest.point.attempt_id})),
        name_(directory_ + "/" + parity_file_name(task.members[task.own].node, task.nodes)) {}

  [[nodiscard]] Status run();

 private:
  [[nodiscard]] Result<bool> is_there();
  [[nodiscard]] Status describe();
  [[nodiscard]] Status write(File& file);
  [[nodiscard]] Status write_row(File& file, std::size_t row);
  [[nodiscard]] Status encode_row(File& file, std::size_t row,
                                  std::span<const std::unique_ptr<StripReader>> readers);
  [[nodiscard]] Status write_header(File& file);
  [[nodiscard]] Status place(const std::string& temporary);

  const ParityTask& task_;
  const ParityLimits& limits_;
  const ParityLayout layout_;
  Vfs& own_;
  const std::string directory_;
  const std::string name_;
  std::vector<std::unique_ptr<MemberStream>> streams_;
  std::uint64_t chunk_bytes_ = 0;
  ShardHeader header_;
  std::uint64_t header_bytes_ = 0;
};

Result<bool> ParityWriter::is_there() {
  auto opened = own_.open_read(name_, Access::kBuffered);
  if (opened) return true;
  if (opened.error().code() == ErrorCode::kNotFound) return false;
  return std::unexpected(opened.error());
}

Status ParityWriter::describe() {
  ParityRecord record{.parity = task_.parity, .own = task_.own};
  for (const ParityMember& member : task_.members) {
    Member described{.node = member.node};
    for (const ManifestFile& file : member.files) {
      DF_TRY(MemberFile one, describe_file(*member.vfs, directory_, file));
      described.files.push_back(std::move(one));
    }
    record.members.push_back(std::move(described));
  }
  chunk_bytes_ = record.chunk_bytes = chunk_bytes_for(record.members, record.parity);
  DF_TRY(header_, parity_header(record, task_.manifest, task_.nodes));
  DF_TRY(const EncodedHeader encoded, encode_header(header_));
  header_bytes_ = encoded.bytes.size();
  for (std::size_t i = 0; i < record.members.size(); ++i) {
    streams_.push_back(std::make_unique<MemberStream>(*task_.members[i].vfs, directory_,
                                                      std::move(record.members[i])));
  }
  return {};
}

Status ParityWriter::write(File& file) {
  DF_TRY_VOID(file.preallocate(header_bytes_ + header_.data_bytes));
  for (std::size_t row = 0; row < task_.parity; ++row) DF_TRY_VOID(write_row(file, row));
  DF_TRY_VOID(write_header(file));
  DF_TRY_VOID(file.sync());
  return file.close();
}

Status ParityWriter::write_row(File& file, std::size_t row) {
  const std::size_t stripe = layout_.stripe_of_parity(task_.own, row);
  std::vector<std::unique_ptr<StripReader>> readers;
  Status done;
  for (std::size_t index = 0; index < layout_.data() && done; ++index) {
    readers.push_back(std::make_unique<StripReader>(*streams_[layout_.data_member(stripe, index)],
                                                    index * chunk_bytes_, chunk_bytes_, limits_));
    done = readers.back()->start();
  }
  if (done) done = encode_row(file, row, readers);
  for (const auto& reader : readers) reader->close();
  return done;
}

Status ParityWriter::encode_row(File& file, std::size_t row,
                                std::span<const std::unique_ptr<StripReader>> readers) {
  DF_TRY(const ErasureCode code, ErasureCode::make(layout_.data(), task_.parity));
  std::vector<std::size_t> given(readers.size());
  for (std::size_t i = 0; i < given.size(); ++i) given[i] = i;
  DF_TRY(const PieceMaker maker, code.make_piece(given, layout_.data() + row));
  DF_TRY(const MappedMemory memory, MappedMemory::allocate(kStripBytes));
  std::vector<const std::byte*> pieces(readers.size());
  for (std::uint64_t done = 0; done < chunk_bytes_; done += kStripBytes) {
    if (limits_.stop.load(std::memory_order_relaxed)) {
      return fail(ErrorCode::kCancelled, fmt::format("protect {}: stopped", own_.path_of(name_)));
    }
    for (std::size_t i = 0; i < readers.size(); ++i) {
      pieces[i] = readers[i]->take();
      if (pieces[i] == nullptr) return std::unexpected(readers[i]->error());
    }
    const auto strip =
        memory.bytes().first(std::min<std::uint64_t>(kStripBytes, chunk_bytes_ - done));
    maker.make(pieces, strip);
    for (const auto& reader : readers) reader->give_back();
    const std::uint64_t at = row * chunk_bytes_ + done;
    for (std::size_t block = 0; block * kBlockBytes < strip.size(); ++block) {
      header_.block_crcs[at / kBlockBytes + block] =
          crc32c(strip.subspan(block * kBlockBytes, kBlockBytes));
    }
    DF_TRY_VOID(file.write_at(header_bytes_ + at, strip));
    DF_FAIL_POINT("parity.encoding");
  }
  return {};
}

// Last, because it has the checksums.
Status ParityWriter::write_header(File& file) {
  DF_TRY(const EncodedHeader encoded, encode_header(header_));
  DF_TRY(const MappedMemory pages, MappedMemory::allocate(encoded.bytes.size()));
  std::ranges::copy(encoded.bytes, pages.bytes().begin());
  return file.write_at(0, pages.bytes());
}

Status ParityWriter::place(const std::string& temporary) {
  DF_FAIL_POINT("parity.written");
  const Status renamed = own_.rename_no_replace(temporary, name_);
  // Another process has calculated the same bytes.
  if (!renamed && renamed.error().code() == ErrorCode::kExists) {
    return own_.remove_file(temporary);
  }
  DF_TRY_VOID(renamed);
  DF_FAIL_POINT("parity.renamed");
  DF_TRY_VOID(own_.sync_dir(directory_));
  DF_FAIL_POINT("parity.synced");
  return {};
}

Status ParityWriter::run() {
  DF_TRY(const bool is_done, is_there());
  if (is_done) return own_.sync_dir(directory_);  // the process that placed it may have died
  // Before the rest: the temporary file tells collectors that the checkpoint is needed.
  const std::string temporary =
      fmt::format("{}/{}", directory_, unfinished_parity_name(random_id()));
  DF_TRY(const auto file, own_.create(temporary, Access::kDirect));
  Status done = describe();
  if (done) done = write(*file);
  if (done) done = place(temporary);
  if (!done) (void)own_.remove_file(temporary);  // it may have its name already
  return done;
}

}  // namespace

Status write_parity(const ParityTask& task, const ParityLimits& limits) {
  return ParityWriter(task, limits).run();
}

}  // namespace deepfreeze

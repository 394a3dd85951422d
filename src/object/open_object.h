// Opens a place that a user names: a directory, or "s3://bucket/prefix". Any thread.
#pragma once

#include <memory>
#include <string>

#include "deepfreeze/options.h"
#include "deepfreeze/result.h"
#include "object/object_place.h"
#include "object/s3_client.h"
#include "storage/tier_store.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Asks nothing of the store yet. Clients of one process share connections and, if they have no
// `keys` of their own, credentials.
[[nodiscard]] Result<std::shared_ptr<S3Client>> open_client(const std::string& url,
                                                            const ObjectServer& server = {},
                                                            const KeySource& keys = {});

// For reading, and for deletions. kNotFound: a directory that is not there. A store is asked
// nothing yet; server and keys are those of a tier of this process, if it has the place open.
[[nodiscard]] Result<std::unique_ptr<Vfs>> open_vfs(const std::string& place);

// To copy files to. A directory is made if there is none; of a store see probe(). With `read_only`
// neither is changed.
[[nodiscard]] Result<std::unique_ptr<TierStore>> open_store(const std::string& place,
                                                            bool read_only,
                                                            const ObjectServer& server = {},
                                                            const KeySource& keys = {});

// absolute_path() of a directory; the URL of a store, without slashes at its end.
[[nodiscard]] Result<std::string> absolute_place(const std::string& place);

}  // namespace deepfreeze

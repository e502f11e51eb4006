// The first look at a beam's logits: its denominator, and the best of its tiles and groups. What score_tiles says
// of these holds here.

// Where it goes.
struct Found {
    float* best;    // [tiles]
    float* groups;  // [parts * groups_of_part]
    Seen* seen;
};

// List layout: what the lanes found becomes the part's groups, one for each `group` lanes.
__device__ __forceinline__ void write_groups(const Step& step, float* groups, int part, float own) {
#pragma unroll 1
    for (int by = 1; by < step.group; by <<= 1) own = fmaxf(own, __shfl_xor_sync(EVERY_LANE, own, by));
    if ((lane_id() & (step.group - 1)) == 0) groups[part * groups_of_part(step) + lane_id() / step.group] = own;
}

// List layout: a tile is an entry to a lane, several tiles are on their way at a time.
template <class T>
__device__ __forceinline__ Mass read_entries(const Step& step, const Beam& beam, int part, int filled, const Found& to) {
    const bool narrowed = step.normalize == NORMALIZE_ELIGIBLE, whole = step.normalize == NORMALIZE_ALL;
    const int parts = step.parts;
    Mass mass;
    float own = never();
#pragma unroll 1
    for (int t = part; t < filled; t += parts * TILES_AHEAD) {
        float x[TILES_AHEAD], most[TILES_AHEAD], top = never();
        bool kept[TILES_AHEAD];
        u32 token[TILES_AHEAD];
#pragma unroll
        for (int k = 0; k < TILES_AHEAD; ++k) {
            const u32 p = static_cast<u32>(t + k * parts) * 32 + lane_id();
            const bool there = t + k * parts < filled && p < beam.size;
            token[k] = there ? token_at(step.table, beam.start + p) : ~0u;
            kept[k] = there && is_eligible(step, beam.beam, p);
        }
#pragma unroll
        for (int k = 0; k < TILES_AHEAD; ++k) x[k] = token[k] != ~0u ? logit_of<T>(step, beam.beam, token[k]) : never();
#pragma unroll
        for (int k = 0; k < TILES_AHEAD; ++k) {
            most[k] = kept[k] ? x[k] : never();
            own = fmaxf(own, most[k]);
            if (narrowed) x[k] = most[k];
            top = fmaxf(top, x[k]);
        }
        if (!whole) add_to_mass(mass, x, top);
        const FourPlaces<32> places;
        const float largest = places.largest(most);
        const int tile = t + static_cast<int>(places.k) * parts;
        if (places.writes && tile < filled) to.best[tile] = largest;
    }
    write_groups(step, to.groups, part, own);
    return mass;
}

// Bitmap layout, anything else: one tile at a time, two tokens to a lane.
template <class T>
__device__ __forceinline__ Mass read_positions(const Step& step, const Beam& beam, int part, float* best) {
    const bool narrowed = step.normalize == NORMALIZE_ELIGIBLE, whole = step.normalize == NORMALIZE_ALL;
    Mass mass;
#pragma unroll 1
    for (int chunk = part; chunk * 2 < step.tiles; chunk += step.parts) {
#pragma unroll 1
        for (int t = chunk * 2; t < min(chunk * 2 + 2, step.tiles); ++t) {
            float x[2], candidate = never();
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const u32 p = static_cast<u32>(t) * 64 + i * 32 + lane_id();
                x[i] = never();
                if (p >= beam.size) continue;
                const bool valid = is_valid(step.table, beam.row, p), kept = valid && is_eligible(step, beam.beam, p);
                const float logit = logit_of<T>(step, beam.beam, p);
                if (kept) candidate = fmaxf(candidate, logit);
                if (whole || (narrowed ? kept : valid)) x[i] = logit;
            }
            candidate = warp_max(candidate);
            if (lane_id() == 0) best[t] = candidate;
            add_to_mass(mass, x, fmaxf(x[0], x[1]));
        }
    }
    return mass;
}

template <class T>
__device__ __forceinline__ Mass read_part(const Step& step, const Beam& beam, int part, const Found& to) {
    if (!is_listed(step)) return read_positions<T>(step, beam, part, to.best);
    const int filled = min(step.tiles, static_cast<int>((beam.size + 31) / 32));
#pragma unroll 1
    for (int t = part + step.parts * lane_id(); t < step.tiles; t += step.parts * 32)
        if (t >= filled) to.best[t] = never();
    Mass mass = read_entries<T>(step, beam, part, filled, to);
    if (step.normalize == NORMALIZE_ALL) {
        mass = Mass();
#pragma unroll 1
        for (u32 v = part * 32 + lane_id(); v < static_cast<u32>(step.vocabulary); v += step.parts * 32) mass.add(logit_of<T>(step, beam.beam, v));
    }
    return mass;
}

// The same of several parts; their mass, in every lane. All parts are summed one after the other.
template <class T>
__device__ __forceinline__ Mass read_parts(const Step& step, const Beam& beam, int first, int end, const Arriving<T>& arriving, const Found& to) {
    if (step.vectors && step.eligible == nullptr) return read_words<T, true>(step, beam, first, end, arriving, to.best);
    if (step.vectors) return read_words<T, false>(step, beam, first, end, arriving, to.best);
    Mass sum;
#pragma unroll 1
    for (int part = first; part < end; ++part) sum.add(read_part<T>(step, beam, part, to).across_warp());
    return sum;
}

// A beam by `share` warps, of which this one is number `own`, with as many others to a block: where one of
// them is not `there` its warps only meet the others. `known` is b * M + m, of request b; `words` has BLOCK_WORDS, `room` is
// that of Arriving, where `vectors`.
template <class T>
__device__ __forceinline__ void score_beam(const Step& step, bool there, u32 b, u32 known, int share, int own, u32* words, u8* room, const Found& to) {
    const bool guided = step.bonus != nullptr || step.nudge != nullptr;
    const bool listed = is_listed(step);
    const u32 beams = step.beams;
    const int tiles = step.tiles, parts = step.parts;
    float* const largest_of = reinterpret_cast<float*>(words);      // [WARPS]
    float* const sum_of = reinterpret_cast<float*>(words) + WARPS;  // [WARPS]
    const int twos = listed ? 0 : 1;  // neighbours in one part: one, or two
    const u32 of_part = groups_of_part(step);
    Beam beam{known, 0, 0, static_cast<u32>(step.vocabulary)};
    // All asked for at once, the count among it, and logits whether or not the beam turns out to live.
    const Arriving<T> arriving(step, known, room);
    const bool asked = step.vectors && there;
    if (asked) arriving.ask(0, own * 128, parts * 128);
    const i64 count = step.in_count[b];
    const bool was_finished = step.in_finished[known];
    const i64 row = step.in_rows[known];
    const float score_before = step.in_scores[known];
    const bool alive = there && known - b * beams < count, finished = alive && was_finished, live = alive && !finished;
    beam.row = live ? row : 0;  // looked up in any case, so that no load waits for a branch
    if (listed) {
        const Range range = range_of(step.table.starts, beam.row);
        beam.start = range.begin;
        beam.size = range.size();
    }
    Mass sum;
    if (!live && asked) await_copies<0>();
    if (live) sum = read_parts<T>(step, beam, own, share == 1 ? parts : own + 1, arriving, to);
    if (share > 1) {
        if (lane_id() == 0) {
            largest_of[warp_id()] = sum.largest;
            sum_of[warp_id()] = sum.sum;
        }
        __syncthreads();
        sum = Mass();
#pragma unroll 1
        for (int i = 0; i < share; ++i) {
            Mass other;
            other.largest = largest_of[warp_id() - own + i];
            other.sum = sum_of[warp_id() - own + i];
            sum.add(other);
        }
        __syncthreads();
    }
    if (!there) return;
    const float2 mass = sum.log();
    const float beam_score = alive ? score_before : never();
    if (own == 0 && lane_id() == 0) *to.seen = Seen{listed && live ? beam.start : beam.row, mass, beam_score, live ? beam.size : 0};
    __syncwarp();

    // Logits become keys, a lane to a tile; the tiles are those that this warp wrote.
    const int end = share == 1 ? parts : own + 1;
#pragma unroll 1
    for (int part = own; part < end; ++part) {
        float of_lane = never();
        if (guided && live) {
#pragma unroll 1
            for (int slot = 0; slot < step.slots; ++slot) {
                const int t = ((part + parts * (slot >> twos)) << twos) + (slot & twos);
                float largest = never();
#pragma unroll 1
                for (int k = lane_id(); k < step.tile && t < tiles; k += 32) {
                    const u32 p = static_cast<u32>(t) * step.tile + k;
                    if (p < beam.size) largest = fmaxf(largest, position_key<T>(step, beam.beam, listed ? beam.start : beam.row, p, mass, beam_score));
                }
                of_lane = fmaxf(of_lane, largest);
                largest = warp_max(largest);
                if (lane_id() == 0 && t < tiles) to.best[t] = largest;
            }
            if (listed) write_groups(step, to.groups, part, of_lane);
            __syncwarp();
        }
        float* const groups = to.groups + part * of_part;
        const int group_shift = __ffs(step.group) - 1;
#pragma unroll 1
        for (int i = 0; i < step.slots; i += 32) {
            const int slot = i + lane_id(), t = ((part + parts * (slot >> twos)) << twos) + (slot & twos);
            float key = never();
            if (slot < step.slots && t < tiles) {
                if (!live) key = finished && t == 0 ? or_dead(beam_score) : never();
                else key = guided ? to.best[t] : or_dead(beam_score + log_probability(to.best[t], mass));
                to.best[t] = key;
            }
            if (listed) continue;
#pragma unroll 1
            for (int by = 1; by < step.group; by <<= 1) key = fmaxf(key, __shfl_xor_sync(EVERY_LANE, key, by));
            if (slot < step.slots && (slot & (step.group - 1)) == 0) groups[slot >> group_shift] = key;
        }
        if (!listed || static_cast<u32>(lane_id()) >= of_part) continue;
        if (!live) groups[lane_id()] = finished && part + lane_id() == 0 ? or_dead(beam_score) : never();
        else if (!guided) groups[lane_id()] = or_dead(beam_score + log_probability(groups[lane_id()], mass));
    }
}

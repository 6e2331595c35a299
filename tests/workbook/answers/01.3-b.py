def push(self, token_id: int) -> str:
    self.token_ids += [token_id]
    end = len(self.token_ids)

    window = []
    for i in range(self.prefix_offset, end):
        window.append(self.token_ids[i])
    whole_text = self.decode(window)
    if len(whole_text) > 0 and whole_text[-1] == REPLACEMENT:
        return ""

    num_context = self.read_offset - self.prefix_offset
    context_text = ""
    if num_context > 0:
        context_text = self.decode(window[:num_context])

    sent = ""
    if len(whole_text) > len(context_text):
        sent = whole_text[len(context_text) :]
        self.prefix_offset = self.read_offset
        self.read_offset = end
    return sent

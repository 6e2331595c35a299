def push(self, token_id: int) -> str:
    self.token_ids.append(token_id)
    context = self.decode(self.token_ids[self.prefix_offset : self.read_offset])
    text = self.decode(self.token_ids[self.prefix_offset :])
    new = text[len(context) :]
    if not new or new.endswith(REPLACEMENT):
        return ""
    self.prefix_offset, self.read_offset = self.read_offset, len(self.token_ids)
    return new

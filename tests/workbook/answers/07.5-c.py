def run(loop: "EngineLoop", receive: Receive, send: Send) -> None:
    message = receive(not loop.has_work)
    while not isinstance(message, Stop):
        if message is None:
            send(loop.step())
        else:
            answer = loop.handle(message)
            if answer is not None:
                send(answer)
        message = receive(not loop.has_work)

//! The `amqp` room.
